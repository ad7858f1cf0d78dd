// Tests of the contract in transport.h, which run over every transport.

#include "common/net/transport/transport.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/net/link/frame.h"
#include "common/testing/transport_fixture.h"

namespace loam::net {
namespace {

using testing::echo;
using testing::RecordingHandler;
using testing::text_of;

template <class World>
class TransportTest : public testing::PairTest<World> {};
TYPED_TEST_SUITE(TransportTest, testing::TestNetworks, testing::TestNetworkNames);

// ---- messages -------------------------------------------------------------------------------------------------------

TYPED_TEST(TransportTest, EchoesMessagesOfManySizesInOrder) {
  this->open();
  this->served_.when_messages = echo;
  std::vector<std::string> wanted;
  size_t i = 0;
  for (const size_t size : {1, 2, 7, 8, 9, 100, 4096, 65'000, 65'504, 65'505, 65'512, 70'000, 300'000, 5}) {
    wanted.push_back(text_of(i++, size));
    wanted.back().resize(static_cast<size_t>(size));
    ASSERT_TRUE(this->connection_->send(as_bytes(wanted.back())).ok());
  }
  ASSERT_TRUE(this->poll_until([&] { return this->owner_.messages.size() >= wanted.size(); }));
  EXPECT_EQ(this->owner_.messages, wanted);
  EXPECT_EQ(this->owner_.misaligned + this->served_.misaligned, 0u);
  EXPECT_EQ(this->client_->counters().messages_out.read(), wanted.size());
  EXPECT_EQ(this->client_->counters().messages_in.read(), wanted.size());
}

TYPED_TEST(TransportTest, KeepsTheOrderOfRandomTrafficBothWays) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  TransportOptions small;
  small.max_frame_bytes = 2048;
  small.window_frames = 3;
  small.max_queued_bytes = 64 * 1024 * 1024;
  this->open(small, small);
  std::vector<std::string> to_server, to_client;
  for (size_t i = 0; i < 3'000; ++i) {
    const size_t size = random() % 50 == 0 ? random() % 20'000 : random() % 200;
    const bool up = random() % 2 == 0;
    (up ? to_server : to_client).push_back(text_of(i, size));
    Connection* from = up ? this->connection_ : this->accepted_;
    ASSERT_TRUE(from->send(as_bytes((up ? to_server : to_client).back())).ok());
    if (random() % 20 == 0) this->client_->poll(0);
    if (random() % 20 == 0) this->server_->poll(0);
    if (random() % 40 == 0) from->flush();
  }
  ASSERT_TRUE(this->poll_until([&] {
    return this->served_.messages.size() >= to_server.size() && this->owner_.messages.size() >= to_client.size();
  }));
  EXPECT_EQ(this->served_.messages, to_server);
  EXPECT_EQ(this->owner_.messages, to_client);
}

TYPED_TEST(TransportTest, MessagesOfARoundTravelInOneFrame) {
  this->open();
  constexpr size_t kMessages = 500;
  for (size_t i = 0; i < kMessages; ++i) ASSERT_TRUE(this->connection_->send(as_bytes(text_of(i, 40))).ok());
  EXPECT_EQ(this->client_->counters().frames_out.read(), 0u) << "nothing leaves before the round ends";
  ASSERT_TRUE(this->poll_until([&] { return this->served_.messages.size() >= kMessages; }));
  EXPECT_EQ(this->client_->counters().frames_out.read(), 1u);
  EXPECT_EQ(this->server_->counters().frames_in.read(), 1u);
  EXPECT_EQ(this->served_.batches, 1u) << "the messages of a frame arrive as one batch";
}

TYPED_TEST(TransportTest, FlushSendsBeforeTheRoundEnds) {
  this->open();
  ASSERT_TRUE(this->connection_->send(as_bytes("now")).ok());
  this->connection_->flush();
  EXPECT_EQ(this->client_->counters().frames_out.read(), 1u);
}

TYPED_TEST(TransportTest, FullBuffersLeaveBeforeTheRoundEnds) {
  this->open();
  for (size_t i = 0; i < 8; ++i) ASSERT_TRUE(this->connection_->send(as_bytes(text_of(i, 60'000))).ok());
  EXPECT_GE(this->client_->counters().frames_out.read(), 4u);
}

TYPED_TEST(TransportTest, ReserveAndCommitLessOrNothing) {
  this->open();
  std::byte* room = this->connection_->reserve(1'000);
  ASSERT_NE(room, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(room) % 8, 0u);
  std::memcpy(room, "short", 5);
  this->connection_->commit(5);
  ASSERT_NE(this->connection_->reserve(50), nullptr);
  this->connection_->commit(0);
  room = this->connection_->reserve(200'000);  // needs fragments
  ASSERT_NE(room, nullptr);
  std::memcpy(room, "large", 5);
  this->connection_->commit(5);
  ASSERT_NE(this->connection_->reserve(200'000), nullptr);
  this->connection_->commit(0);
  ASSERT_TRUE(this->connection_->send(as_bytes("end")).ok());
  ASSERT_TRUE(this->poll_until([&] { return this->served_.messages.size() >= 3; }));
  EXPECT_EQ(this->served_.messages, (std::vector<std::string>{"short", "large", "end"}));
}

TYPED_TEST(TransportTest, MessagesSentBeforeTheHandshakeWaitForIt) {
  this->server_ = &this->add();
  this->client_ = &this->add();
  const Address address = this->listen(*this->server_, this->served_);
  Connection& connection = this->connect(*this->client_, address, this->owner_);
  const std::string large = text_of(3, 30'000);
  ASSERT_TRUE(connection.send(as_bytes("first")).ok());
  ASSERT_TRUE(connection.send(as_bytes(large)).ok());
  ASSERT_TRUE(connection.send(as_bytes("last")).ok());
  ASSERT_TRUE(this->poll_until([&] { return this->served_.messages.size() >= 3; }));
  EXPECT_EQ(this->served_.messages, (std::vector<std::string>{"first", large, "last"}));
}

TYPED_TEST(TransportTest, LargestMessageGoesThroughAndALargerOneIsRefused) {
  TransportOptions options;
  options.max_message_bytes = 1'000'000;
  this->open(options);
  EXPECT_EQ(this->connection_->max_message_bytes(), 1'000'000u) << "the smaller limit of both sides";
  EXPECT_EQ(this->accepted_->max_message_bytes(), 1'000'000u);
  const std::string largest = text_of(1, 1'000'000);
  ASSERT_TRUE(this->connection_->send(as_bytes(largest)).ok());
  const Status refused = this->connection_->send(as_bytes(largest + "x"));
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("1000001 bytes"), std::string_view::npos) << refused.to_string();
  EXPECT_EQ(this->connection_->send({}).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(this->poll_until([&] { return !this->served_.messages.empty(); }));
  EXPECT_EQ(this->served_.messages.front(), largest);
}

TYPED_TEST(TransportTest, FramesKeepToTheSmallerLimitOfThePeer) {
  TransportOptions small;
  small.max_frame_bytes = kMinFrameBytes;
  this->open(small);
  this->served_.when_messages = echo;
  std::vector<std::string> wanted;
  for (size_t i = 0; i < 300; ++i) {
    wanted.push_back(text_of(i, i * 10));
    ASSERT_TRUE(this->connection_->send(as_bytes(wanted.back())).ok());
  }
  ASSERT_TRUE(this->poll_until([&] { return this->owner_.messages.size() >= wanted.size(); }));
  EXPECT_EQ(this->owner_.messages, wanted);
}

// ---- flow control ---------------------------------------------------------------------------------------------------

TYPED_TEST(TransportTest, APausedReceiverHoldsOneWindowAndTheSenderIsOverloaded) {
  TransportOptions options;
  options.max_frame_bytes = 4096;
  options.window_frames = 4;
  options.max_queued_bytes = 64 * 1024;
  this->open(options, options);
  this->accepted_->pause_receiving();
  size_t sent = 0;
  Status refused;
  for (; sent < 10'000; ++sent) {
    refused = this->connection_->send(as_bytes(text_of(sent, 1'000)));
    if (!refused.ok()) break;
    if (sent % 10 == 0) {
      this->client_->poll(0);
      this->server_->poll(0);
    }
  }
  this->poll_until_idle();
  EXPECT_EQ(refused.code(), StatusCode::kOverloaded);
  EXPECT_LE(this->connection_->queued_bytes(), options.max_queued_bytes);
  EXPECT_EQ(this->server_->counters().frames_in.read(), options.window_frames);
  EXPECT_LE(this->server_->counters().bytes_in.read(), sizeof(Greeting) + 4 * 4096);
  EXPECT_GE(this->client_->counters().credit_stalls.read(), 1u);
  EXPECT_EQ(this->client_->counters().overloads.read(), 1u);
  EXPECT_EQ(this->served_.messages.size(), 0u);
  EXPECT_EQ(this->owner_.writable, 0u);

  this->accepted_->resume_receiving();
  ASSERT_TRUE(this->poll_until([&] { return this->served_.messages.size() >= sent; }));
  EXPECT_EQ(this->owner_.writable, 1u);
  for (size_t i = 0; i < sent; ++i) ASSERT_EQ(this->served_.messages[i], text_of(i, 1'000));
  EXPECT_TRUE(this->connection_->send(as_bytes("again")).ok());
}

TYPED_TEST(TransportTest, APausedReceiverStillSends) {
  TransportOptions options;
  options.max_frame_bytes = kMinFrameBytes;
  options.window_frames = 2;
  this->open(options, options);
  this->accepted_->pause_receiving();
  for (size_t i = 0; i < 20; ++i) ASSERT_TRUE(this->connection_->send(as_bytes(text_of(i, 900))).ok());
  // The paused side still receives the credits for its own messages between the frames that wait.
  for (size_t i = 0; i < 200; ++i) ASSERT_TRUE(this->accepted_->send(as_bytes(text_of(i, 900))).ok());
  ASSERT_TRUE(this->poll_until([&] { return this->owner_.messages.size() >= 200; }));
  EXPECT_EQ(this->served_.messages.size(), 0u);
  this->accepted_->resume_receiving();
  ASSERT_TRUE(this->poll_until([&] { return this->served_.messages.size() >= 20; }));
}

TYPED_TEST(TransportTest, BothSidesAtFullSpeedWithATinyWindow) {
  TransportOptions options;
  options.max_frame_bytes = kMinFrameBytes;
  options.window_frames = 2;
  options.max_queued_bytes = 20'000;
  this->open(options, options);
  constexpr size_t kEach = 3'000;
  size_t up = 0, down = 0;
  const auto fill = [](Connection& connection, size_t& n) {
    while (n < kEach && connection.send(as_bytes(text_of(n, 300))).ok()) ++n;
  };
  this->owner_.when_writable = [&](Connection& connection) { fill(connection, up); };
  this->served_.when_writable = [&](Connection& connection) { fill(connection, down); };
  fill(*this->connection_, up);
  fill(*this->accepted_, down);
  ASSERT_TRUE(this->poll_until(
      [&] { return this->owner_.messages.size() >= kEach && this->served_.messages.size() >= kEach; }));
  for (size_t i = 0; i < kEach; ++i) {
    ASSERT_EQ(this->owner_.messages[i], text_of(i, 300));
    ASSERT_EQ(this->served_.messages[i], text_of(i, 300));
  }
}

TYPED_TEST(TransportTest, AMessageLargerThanTheQueueIsAcceptedWhenTheQueueIsEmpty) {
  TransportOptions options;
  options.max_queued_bytes = 1'000;
  this->open(options, options);
  const std::string large = text_of(7, 3 * kWindowFrames * kMaxFrameBytes);  // more than the credits permit at once
  ASSERT_TRUE(this->connection_->send(as_bytes(large)).ok());
  EXPECT_EQ(this->connection_->send(as_bytes("x")).code(), StatusCode::kOverloaded);
  ASSERT_TRUE(this->poll_until([&] { return this->owner_.writable > 0; }));
  ASSERT_TRUE(this->poll_until([&] { return !this->served_.messages.empty(); }));
  EXPECT_EQ(this->served_.messages.front(), large);
}

TYPED_TEST(TransportTest, NoBuffersAreAllocatedInTheSteadyState) {
  this->open();
  this->served_.keep = this->owner_.keep = false;
  this->served_.when_messages = echo;
  const auto round = [&](size_t n) {
    const size_t before = this->owner_.bytes;
    for (size_t i = 0; i < 100; ++i) ASSERT_TRUE(this->connection_->send(as_bytes("0123456789")).ok());
    ASSERT_TRUE(this->poll_until([&] { return this->owner_.bytes >= before + 1'000; })) << n;
  };
  for (size_t i = 0; i < 50; ++i) round(i);
  const uint64_t client = this->client_->counters().buffer_allocations.read();
  const uint64_t server = this->server_->counters().buffer_allocations.read();
  for (size_t i = 0; i < 200; ++i) round(i);
  EXPECT_EQ(this->client_->counters().buffer_allocations.read(), client);
  EXPECT_EQ(this->server_->counters().buffer_allocations.read(), server);
}

// ---- the end of connections -----------------------------------------------------------------------------------------

TYPED_TEST(TransportTest, CloseNotifiesBothSidesOnceAndSendsCommittedMessages) {
  this->open();
  ASSERT_TRUE(this->connection_->send(as_bytes("last words")).ok());
  this->connection_->flush();
  this->connection_->close({StatusCode::kCancelled, "the test ends it"});
  EXPECT_FALSE(this->connection_->is_open());
  EXPECT_EQ(this->connection_->send(as_bytes("x")).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(this->owner_.closed.empty()) << "only poll() calls on_closed()";
  ASSERT_TRUE(this->poll_until([&] { return !this->owner_.closed.empty() && !this->served_.closed.empty(); }));
  this->poll_until_idle();
  ASSERT_EQ(this->owner_.closed.size(), 1u);
  ASSERT_EQ(this->served_.closed.size(), 1u);
  EXPECT_EQ(this->owner_.closed[0].code(), StatusCode::kCancelled);
  EXPECT_EQ(this->served_.closed[0].code(), StatusCode::kUnavailable);
  EXPECT_NE(this->served_.closed[0].message().find("the test ends it"), std::string_view::npos)
      << this->served_.closed[0].to_string();
  EXPECT_EQ(this->served_.messages, std::vector<std::string>{"last words"});
}

TYPED_TEST(TransportTest, AHandlerMayCloseInsideItsCallback) {
  this->open();
  this->served_.when_messages = [](Connection& connection, std::span<const Bytes>) {
    connection.close({StatusCode::kMalformed, "a message that the test refuses"});
  };
  ASSERT_TRUE(this->connection_->send(as_bytes("?")).ok());
  ASSERT_TRUE(this->poll_until([&] { return !this->owner_.closed.empty() && !this->served_.closed.empty(); }));
  EXPECT_EQ(this->owner_.closed[0].code(), StatusCode::kMalformed);
  EXPECT_NE(this->owner_.closed[0].message().find("the test refuses"), std::string_view::npos);
}

TYPED_TEST(TransportTest, ADeadTransportClosesItsPeers) {
  this->open();
  this->transports_.erase(this->transports_.begin());  // destroys the server's transport, without a goodbye
  ASSERT_TRUE(this->poll_until([&] { return !this->owner_.closed.empty(); }));
  EXPECT_EQ(this->owner_.closed[0].code(), StatusCode::kUnavailable);
  EXPECT_TRUE(this->served_.closed.empty()) << "a destructor makes no callbacks";
}

TYPED_TEST(TransportTest, AConnectWithoutAListenerFailsInALaterPoll) {
  this->server_ = &this->add();
  this->client_ = &this->add();
  const auto listener = this->server_->listen(this->world_.listen_address(0), this->served_);
  ASSERT_TRUE(listener.ok());
  const Address address = (*listener)->address();
  (*listener)->close();
  Connection& connection = this->connect(*this->client_, address, this->owner_);
  EXPECT_FALSE(connection.is_open());
  ASSERT_TRUE(this->poll_until([&] { return !this->owner_.closed.empty(); }));
  EXPECT_EQ(this->owner_.closed[0].code(), StatusCode::kUnavailable);
  EXPECT_NE(this->owner_.closed[0].message().find(address.to_string()), std::string_view::npos);
  EXPECT_NE(this->owner_.closed[0].message().find("does the server run"), std::string_view::npos)
      << this->owner_.closed[0].to_string();
}

TYPED_TEST(TransportTest, APortInUseIsAClearError) {
  Transport& one = this->add();
  const Address address = this->listen(one, this->served_);
  const auto second = one.listen(address, this->served_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.code(), StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find("port " + std::to_string(address.port)), std::string_view::npos);
  EXPECT_NE(second.status().message().find("in use"), std::string_view::npos);
  EXPECT_NE(second.status().message().find("choose another port"), std::string_view::npos);
}

TYPED_TEST(TransportTest, AddressesOfOtherSchemesAreRefused) {
  Transport& one = this->add();
  Address other = *Address::parse("tcp://127.0.0.1:5");
  if (TypeParam::kScheme == Scheme::kTcp) other.scheme = Scheme::kRdma;
  EXPECT_EQ(one.connect(other, this->owner_).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(one.listen(other, this->owner_).code(), StatusCode::kInvalidArgument);
  Address no_port = this->world_.listen_address(0);
  EXPECT_EQ(one.connect(no_port, this->owner_).code(), StatusCode::kInvalidArgument);
}

TYPED_TEST(TransportTest, ImpossibleOptionsAreRefused) {
  TransportOptions options;
  options.window_frames = 1;
  const Status status = make_tcp_transport(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("window_frames"), std::string_view::npos);
}

TYPED_TEST(TransportTest, AnotherProtocolVersionIsRefusedWithBothVersions) {
  TransportOptions old;
  old.protocol_version = kFramingVersion + 6;
  this->server_ = &this->add();
  this->client_ = &this->add(old);
  const Address address = this->listen(*this->server_, this->served_);
  this->connect(*this->client_, address, this->owner_);
  ASSERT_TRUE(this->poll_until([&] { return !this->owner_.closed.empty(); }));
  EXPECT_EQ(this->owner_.closed[0].code(), StatusCode::kUnsupportedVersion);
  const std::string_view message = this->owner_.closed[0].message();
  EXPECT_NE(message.find("speaks version " + std::to_string(kFramingVersion)), std::string_view::npos) << message;
  EXPECT_NE(message.find("this program version " + std::to_string(old.protocol_version)), std::string_view::npos);
  EXPECT_TRUE(this->served_.connections.empty());
  EXPECT_TRUE(this->served_.closed.empty()) << "a connection that was never announced";
  EXPECT_EQ(this->server_->counters().connections_refused.read(), 1u);
}

TYPED_TEST(TransportTest, ConnectionsBeyondTheLimitAreRefused) {
  TransportOptions two;
  two.max_connections = 2;
  this->server_ = &this->add(two);
  this->client_ = &this->add();
  const Address address = this->listen(*this->server_, this->served_);
  for (int i = 0; i < 3; ++i) this->connect(*this->client_, address, this->owner_);
  ASSERT_TRUE(
      this->poll_until([&] { return this->owner_.connections.size() == 2 && this->owner_.closed.size() == 1; }));
  if (TypeParam::kScheme != Scheme::kSim) {
    EXPECT_EQ(this->owner_.closed[0].code(), StatusCode::kOverloaded) << this->owner_.closed[0].to_string();
  }
  this->owner_.connections[0]->close({StatusCode::kCancelled, ""});
  ASSERT_TRUE(this->poll_until([&] { return this->served_.closed.size() == 1; }));
  this->connect(*this->client_, address, this->owner_);
  ASSERT_TRUE(this->poll_until([&] { return this->owner_.connections.size() == 2; }));
}

TYPED_TEST(TransportTest, ManyConnectionsKeepTheirMessagesApart) {
  this->server_ = &this->add();
  this->client_ = &this->add();
  const Address address = this->listen(*this->server_, this->served_);
  this->served_.when_messages = echo;
  constexpr size_t kConnections = 200;
  std::vector<size_t> replies(kConnections);
  std::vector<Connection*> connections;
  this->owner_.when_messages = [&](Connection& connection, std::span<const Bytes> batch) {
    const auto i = reinterpret_cast<uintptr_t>(connection.template context<void>());
    for (const Bytes message : batch) {
      EXPECT_EQ(as_text(message), text_of(i * 10 + replies[i], 20));
      ++replies[i];
    }
  };
  for (size_t i = 0; i < kConnections; ++i) {
    connections.push_back(&this->connect(*this->client_, address, this->owner_));
    connections.back()->set_context(reinterpret_cast<void*>(i));
    for (size_t m = 0; m < 10; ++m) ASSERT_TRUE(connections.back()->send(as_bytes(text_of(i * 10 + m, 20))).ok());
  }
  ASSERT_TRUE(this->poll_until([&] { return this->owner_.messages.size() >= 10 * kConnections; }));
  for (const size_t n : replies) EXPECT_EQ(n, 10u);
  EXPECT_EQ(this->server_->counters().connections_opened.read(), kConnections);
}

TYPED_TEST(TransportTest, AListenerDistributesItsConnectionsToSeveralTransports) {
  Transport& first = this->add();
  Transport& second = this->add();
  this->client_ = &this->add();
  RecordingHandler one, two;
  const std::vector<Transport::AcceptTarget> targets = {{&first, &one}, {&second, &two}};
  const auto listener = first.listen(this->world_.listen_address(0), targets);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  one.when_messages = two.when_messages = echo;
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(this->connect(*this->client_, (*listener)->address(), this->owner_).send(as_bytes("hello")).ok());
  }
  ASSERT_TRUE(this->poll_until([&] { return this->owner_.messages.size() >= 6; }));
  EXPECT_EQ(one.messages.size(), 3u);
  EXPECT_EQ(two.messages.size(), 3u);
  EXPECT_EQ(first.counters().connections_opened.read(), 3u);
  EXPECT_EQ(second.counters().connections_opened.read(), 3u);
}

// ---- polling --------------------------------------------------------------------------------------------------------

TYPED_TEST(TransportTest, WakeEndsTheNextPoll) {
  Transport& one = this->add();
  one.wake();
  EXPECT_EQ(one.poll(kForever), 0u);
}

TYPED_TEST(TransportTest, CountersCountRoundsAndFlushes) {
  this->open();
  const uint64_t polls = this->client_->counters().polls.read();
  const uint64_t empty = this->client_->counters().empty_polls.read();
  const uint64_t flushes = this->client_->counters().flushes.read();
  this->client_->poll(0);
  this->client_->poll(0);
  EXPECT_EQ(this->client_->counters().polls.read(), polls + 2);
  EXPECT_EQ(this->client_->counters().empty_polls.read(), empty + 2);
  EXPECT_EQ(this->client_->counters().flushes.read(), flushes);
  ASSERT_TRUE(this->connection_->send(as_bytes("one")).ok());
  ASSERT_TRUE(this->connection_->send(as_bytes("two")).ok());
  this->client_->poll(0);
  EXPECT_EQ(this->client_->counters().flushes.read(), flushes + 1);
}

}  // namespace
}  // namespace loam::net
