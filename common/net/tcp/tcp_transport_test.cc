// Properties of the TCP transport alone: arbitrary bytes on a real socket, several threads, time-outs.

#include "common/net/tcp/tcp_transport.h"

#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include "common/base/log.h"
#include "common/net/link/frame.h"
#include "common/net/tcp/tcp_socket.h"
#include "common/testing/transport_fixture.h"

namespace loam::net {
namespace {

using testing::echo;
using testing::RecordingHandler;

void append(Buffer& out, const void* from, size_t size) {
  const auto* bytes = static_cast<const std::byte*>(from);
  out.insert(out.end(), bytes, bytes + size);
}

Greeting good_greeting() {
  Greeting greeting;
  greeting.protocol_version = kFramingVersion;
  greeting.max_frame_bytes = kMaxFrameBytes;
  greeting.window_frames = kWindowFrames;
  greeting.max_message_bytes = kMaxMessageBytes;
  return greeting;
}

/// Makes a frame of these parts, which may contradict each other.
Buffer frame(FrameType type, uint32_t size_bytes, uint16_t credits, uint32_t a, uint32_t b, std::string_view payload) {
  const FrameHeader header{size_bytes, type, 0, credits, a, b};
  Buffer out;
  append(out, &header, sizeof(header));
  append(out, payload.data(), payload.size());
  return out;
}

std::string raw(const auto& value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }

/// A frame with one message.
Buffer message_frame(std::string_view text) {
  const size_t footprint = message_footprint(text.size());
  std::string payload = raw(MessageHeader{static_cast<uint32_t>(text.size()), 0}) + std::string(text);
  payload.resize(footprint);
  return frame(FrameType::kMessages, static_cast<uint32_t>(16 + footprint), 0, 1, 0, payload);
}

class TcpTest : public testing::NetTest<testing::TcpTestNetwork> {
 protected:
  void serve(const TransportOptions& options = {}) {
    server_ = &add(options);
    address_ = listen(*server_, served_);
  }

  /// Connects a plain socket, without a transport, to the server.
  Fd raw_socket() {
    const SocketAddress where = (*resolve(address_)).front();
    Fd fd(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(fd.get(), where.get(), where.size), 0);
    return fd;
  }
  static void put(const Fd& fd, Bytes bytes) {
    EXPECT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  static void put(const Fd& fd, const Greeting& greeting) { put(fd, std::as_bytes(std::span(&greeting, 1))); }

  /// Returns all bytes that the server sends until it closes the socket.
  Buffer read_to_end(const Fd& fd) {
    Buffer all;
    bool ended = false;
    EXPECT_TRUE(poll_until([&] {
      std::array<std::byte, 4096> part;
      const ssize_t size = ::recv(fd.get(), part.data(), part.size(), MSG_DONTWAIT);
      if (size > 0) append(all, part.data(), static_cast<size_t>(size));
      ended = size == 0 || (size < 0 && errno != EAGAIN);
      return ended;
    }));
    return all;
  }

  /// Sends `bytes` over a plain socket after the handshake. Expects that the server closes this connection as
  /// malformed, with a reason that contains `why`.
  void expect_closed_as_malformed(Bytes bytes, std::string_view why) {
    const size_t closed_before = served_.closed.size();
    const Fd fd = raw_socket();
    put(fd, good_greeting());
    put(fd, bytes);
    const Buffer reply = read_to_end(fd);
    ASSERT_EQ(served_.closed.size(), closed_before + 1);
    const Status& status = served_.closed.back();
    EXPECT_EQ(status.code(), StatusCode::kMalformed) << status.to_string();
    EXPECT_NE(status.message().find(why), std::string_view::npos) << status.to_string();
    // The reply is a kWelcome greeting, and then a goodbye with the reason.
    ASSERT_GE(reply.size(), sizeof(Greeting) + sizeof(FrameHeader));
    const auto goodbye = read_as<FrameHeader>(reply.data() + sizeof(Greeting));
    EXPECT_EQ(goodbye.type, FrameType::kGoodbye);
    EXPECT_EQ(goodbye.a, static_cast<uint32_t>(StatusCode::kMalformed));
  }

  Transport* server_ = nullptr;
  RecordingHandler served_, owner_;
  Address address_;
};

// ---- the handshake --------------------------------------------------------------------------------------------------

TEST_F(TcpTest, AnotherVersionGetsAReplyThatItsOwnCodeCanRead) {
  serve();
  const Fd fd = raw_socket();
  Greeting greeting = good_greeting();
  greeting.protocol_version = 99;
  put(fd, greeting);
  const Buffer reply = read_to_end(fd);
  ASSERT_EQ(reply.size(), sizeof(Greeting));
  const auto reject = read_as<Greeting>(reply.data());
  EXPECT_EQ(reject.magic, kMagic);
  EXPECT_EQ(reject.kind, GreetingKind::kReject);
  EXPECT_EQ(reject.protocol_version, kFramingVersion);
  EXPECT_EQ(reject.code, static_cast<uint32_t>(StatusCode::kUnsupportedVersion));
  EXPECT_TRUE(served_.connections.empty());
}

TEST_F(TcpTest, OtherProtocolsAreClosedAtOnce) {
  serve();
  const Fd fd = raw_socket();
  put(fd, as_bytes("GET / HTTP/1.1\r\n\r\n"));
  EXPECT_TRUE(read_to_end(fd).empty());
  EXPECT_EQ(server_->counters().connections_refused.read(), 1u);
}

TEST_F(TcpTest, AServerOfAnotherProtocolIsRefusedAsMalformed) {
  Transport& client = add();
  Fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  SocketAddress where = (*resolve(*Address::parse("tcp://127.0.0.1:0"))).front();
  ASSERT_EQ(::bind(listening.get(), where.get(), where.size), 0);
  ASSERT_EQ(::listen(listening.get(), 1), 0);
  connect(client, local_address(listening.get()).to_address(), owner_);
  Fd accepted;
  ASSERT_TRUE(poll_until([&] {
    accepted.reset(::accept(listening.get(), nullptr, nullptr));
    return static_cast<bool>(accepted);
  }));
  put(accepted, as_bytes("220 mail.example ESMTP\r\n"));
  ASSERT_TRUE(poll_until([&] { return !owner_.closed.empty(); }));
  EXPECT_EQ(owner_.closed[0].code(), StatusCode::kMalformed);
  EXPECT_NE(owner_.closed[0].message().find("does not speak Loam"), std::string_view::npos);
}

TEST_F(TcpTest, APeerWithoutHandshakeIsClosedAtTheDeadline) {
  TransportOptions options;
  options.handshake_timeout_ns = 30'000'000;
  serve(options);
  const Fd silent = raw_socket();
  const Fd slow = raw_socket();
  const Greeting greeting = good_greeting();
  put(slow, std::as_bytes(std::span(&greeting, 1)).first(63));
  EXPECT_TRUE(read_to_end(silent).empty());
  EXPECT_TRUE(read_to_end(slow).empty());
  EXPECT_TRUE(served_.closed.empty()) << "a connection that was never announced";
  EXPECT_EQ(server_->counters().connections_refused.read(), 2u);
}

TEST_F(TcpTest, AConnectWithoutReplyEndsAtTheDeadline) {
  TransportOptions options;
  options.handshake_timeout_ns = 30'000'000;
  Transport& client = add(options);
  Fd listening(::socket(AF_INET, SOCK_STREAM, 0));  // the kernel accepts the connection, and no program answers
  SocketAddress where = (*resolve(*Address::parse("tcp://127.0.0.1:0"))).front();
  ASSERT_EQ(::bind(listening.get(), where.get(), where.size), 0);
  ASSERT_EQ(::listen(listening.get(), 1), 0);
  connect(client, local_address(listening.get()).to_address(), owner_);
  ASSERT_TRUE(poll_until([&] { return !owner_.closed.empty(); }));
  EXPECT_EQ(owner_.closed[0].code(), StatusCode::kTimeout);
}

TEST_F(TcpTest, ImpossibleLimitsInTheGreetingAreRefused) {
  serve();
  for (int field = 0; field < 3; ++field) {
    Greeting greeting = good_greeting();
    if (field == 0) greeting.max_frame_bytes = 16;
    if (field == 1) greeting.window_frames = 0;
    if (field == 2) greeting.max_message_bytes = 0;
    const Fd fd = raw_socket();
    put(fd, greeting);
    read_to_end(fd);
  }
  EXPECT_TRUE(served_.connections.empty());
  EXPECT_EQ(server_->counters().connections_refused.read(), 3u);
}

TEST_F(TcpTest, NamesAreLookedUp) {
  serve();
  Transport& client = add();
  Address by_name = address_;
  by_name.host = "localhost";
  connect(client, by_name, owner_);
  ASSERT_TRUE(poll_until([&] { return !owner_.connections.empty(); }));
  by_name.host = "no-such-host.invalid";
  connect(client, by_name, owner_);
  EXPECT_TRUE(owner_.closed.empty()) << "connect() waits for the name server";
  ASSERT_TRUE(poll_until([&] { return !owner_.closed.empty(); }));
  EXPECT_EQ(owner_.closed[0].code(), StatusCode::kUnavailable);
  EXPECT_NE(owner_.closed[0].message().find("no-such-host.invalid"), std::string_view::npos);
}

TEST_F(TcpTest, AConnectionMayEndWhileItsNameIsLookedUp) {
  Transport& client = add();
  Address by_name = *Address::parse("tcp://no-such-host.invalid:7400");
  for (int i = 0; i < 20; ++i) connect(client, by_name, owner_).close({StatusCode::kCancelled, "not needed"});
  ASSERT_TRUE(poll_until([&] { return owner_.closed.size() == 20; }));
  for (const Status& closed : owner_.closed) EXPECT_EQ(closed.code(), StatusCode::kCancelled);
}

TEST_F(TcpTest, AnAddressOfAnotherHostIsAClearError) {
  const auto listener = add().listen(*Address::parse("tcp://192.0.2.1:7400"), served_);
  EXPECT_EQ(listener.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(listener.status().message().find("192.0.2.1 is not an address of this host"), std::string_view::npos);
}

// ---- malformed frames -----------------------------------------------------------------------------------------------

TEST_F(TcpTest, MalformedFramesEndTheirConnectionOnly) {
  TransportOptions options;
  options.max_message_bytes = 100'000;
  serve(options);
  served_.when_messages = echo;
  Transport& client = add();
  Connection& honest = connect(client, address_, owner_);
  ASSERT_TRUE(poll_until([&] { return !owner_.connections.empty(); }));

  const std::string m8 = raw(MessageHeader{8, 0}) + "12345678";
  const std::string part = raw(PartHeader{20, 0});
  expect_closed_as_malformed(frame(FrameType{0}, 16, 0, 0, 0, ""), "unknown type 0");
  expect_closed_as_malformed(frame(FrameType{9}, 16, 0, 0, 0, ""), "unknown type 9");
  expect_closed_as_malformed(frame(FrameType::kMessages, 0, 0, 0, 0, ""), "a frame of 0 bytes");
  expect_closed_as_malformed(frame(FrameType::kMessages, 33, 0, 1, 0, ""), "a frame of 33 bytes");
  expect_closed_as_malformed(frame(FrameType::kMessages, 65'544, 0, 1, 0, ""), "the limit is 65536");
  expect_closed_as_malformed(frame(FrameType::kMessages, UINT32_MAX - 7, 0, 1, 0, ""), "the limit is 65536");
  expect_closed_as_malformed(frame(FrameType::kMessages, 16, 0, 0, 0, ""), "miscounted");
  expect_closed_as_malformed(frame(FrameType::kMessages, 32, 0, 2, 0, m8), "miscounted");
  expect_closed_as_malformed(frame(FrameType::kMessages, 32, 0, 1, 0, raw(MessageHeader{9, 0}) + "12345678"),
                             "9 bytes where 8");
  expect_closed_as_malformed(frame(FrameType::kMessages, 32, 0, 1, 0, raw(MessageHeader{UINT32_MAX, 0}) + "12345678"),
                             "4294967295 bytes where 8");
  expect_closed_as_malformed(frame(FrameType::kMessages, 32, 0, 1, 0, raw(MessageHeader{0, 0}) + "12345678"),
                             "0 bytes where");
  expect_closed_as_malformed(frame(FrameType::kMessages, 32, 0, 1, 0, raw(MessageHeader{8, 1}) + "12345678"),
                             "8 bytes where");
  expect_closed_as_malformed(frame(FrameType::kCredits, 16, 5, 0, 0, ""), "5 credits, of which only 0 were in use");
  expect_closed_as_malformed(frame(FrameType::kCredits, 16, 0, 0, 0, ""), "without credits");
  expect_closed_as_malformed(frame(FrameType::kCredits, 24, 0, 0, 0, "12345678"), "with a payload");
  expect_closed_as_malformed(frame(FrameType::kFragment, 24, 0, 8, 0, "12345678"), "contradict each other");
  expect_closed_as_malformed(frame(FrameType::kFragment, 40, 0, 9, 0, part + "12345678"), "contradict each other");
  expect_closed_as_malformed(frame(FrameType::kFragment, 40, 0, 0, 0, part + "12345678"), "contradict each other");
  expect_closed_as_malformed(frame(FrameType::kFragment, 40, 0, 8, 0, raw(PartHeader{100'001, 0}) + "12345678"),
                             "the limit is 100000");
  expect_closed_as_malformed(frame(FrameType::kFragment, 40, 0, 8, 0, raw(PartHeader{20, 8}) + "12345678"),
                             "do not fit");
  expect_closed_as_malformed(frame(FrameType::kFragment, 40, 0, 8, 0, raw(PartHeader{7, 0}) + "12345678"),
                             "do not fit");
  expect_closed_as_malformed(frame(FrameType::kFragment, 40, 0, 8, 0, raw(PartHeader{0, 0}) + "12345678"), "0 bytes");
  Buffer interleaved = frame(FrameType::kFragment, 40, 0, 8, 0, part + "12345678");
  const Buffer whole = message_frame("hello");
  append(interleaved, whole.data(), whole.size());
  expect_closed_as_malformed(interleaved, "between the fragments");
  expect_closed_as_malformed(frame(FrameType::kWrite, 40, 0, 8, 0, raw(PartHeader{1, 0}) + "12345678"),
                             "which is not offered");

  ASSERT_TRUE(honest.send(as_bytes("still here")).ok());
  ASSERT_TRUE(poll_until([&] { return !owner_.messages.empty(); }));
  EXPECT_EQ(owner_.messages[0], "still here");
  EXPECT_EQ(served_.connections.size(), 1u);
}

TEST_F(TcpTest, MessagesBeforeAMalformedFrameAreDelivered) {
  serve();
  Buffer bytes = message_frame("good");
  const Buffer bad = frame(FrameType{77}, 16, 0, 0, 0, "");
  append(bytes, bad.data(), bad.size());
  expect_closed_as_malformed(bytes, "unknown type 77");
  EXPECT_EQ(served_.messages, std::vector<std::string>{"good"});
}

TEST_F(TcpTest, ATruncatedFrameIsNotDelivered) {
  serve();
  const Fd fd = raw_socket();
  put(fd, good_greeting());
  const Buffer bytes = message_frame("truncated in the middle");
  put(fd, Bytes(bytes).first(bytes.size() - 3));
  ::shutdown(fd.get(), SHUT_WR);
  ASSERT_TRUE(poll_until([&] { return !served_.closed.empty(); }));
  EXPECT_EQ(served_.closed[0].code(), StatusCode::kUnavailable);
  EXPECT_TRUE(served_.messages.empty());
}

TEST_F(TcpTest, FramesBeyondTheCreditsAreRefused) {
  TransportOptions options;
  options.window_frames = 2;
  serve(options);
  served_.when_connected = [](Connection& connection) { connection.pause_receiving(); };
  Buffer bytes;
  for (int i = 0; i < 3; ++i) {
    const Buffer one = message_frame("impatient");
    append(bytes, one.data(), one.size());
  }
  expect_closed_as_malformed(bytes, "more frames than it had credits for");
}

TEST_F(TcpTest, AFrameMayArriveByteByByte) {
  serve();
  const Fd fd = raw_socket();
  tune_socket(fd.get(), 1'000'000'000);
  Buffer bytes;
  const Greeting greeting = good_greeting();
  append(bytes, &greeting, sizeof(greeting));
  for (const char* text : {"a", "message", "in pieces of one byte"}) {
    const Buffer one = message_frame(text);
    append(bytes, one.data(), one.size());
  }
  for (const std::byte byte : bytes) {
    put(fd, Bytes(&byte, 1));
    server_->poll(0);
  }
  ASSERT_TRUE(poll_until([&] { return served_.messages.size() >= 3; }));
  EXPECT_EQ(served_.messages, (std::vector<std::string>{"a", "message", "in pieces of one byte"}));
}

TEST_F(TcpTest, RandomBytesAndDamagedFramesEndOnlyTheirConnection) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  TransportOptions options;
  options.max_message_bytes = 1'000'000;
  serve(options);
  served_.when_messages = echo;
  served_.keep = false;
  Transport& client = add();
  Connection& honest = connect(client, address_, owner_);
  ASSERT_TRUE(poll_until([&] { return !owner_.connections.empty(); }));
  Buffer region(64);
  for (int round = 0; round < 300; ++round) {
    const Fd fd = raw_socket();
    Buffer bytes;
    const Greeting greeting = good_greeting();
    append(bytes, &greeting, sizeof(greeting));
    for (size_t i = random() % 6; i > 0; --i) {
      const auto type = static_cast<FrameType>(random() % 7);
      std::string payload(random() % 40 * 8, '\0');
      for (char& c : payload) c = static_cast<char>(random() % 4 == 0 ? random() : 0);
      const auto size = static_cast<uint32_t>(16 + payload.size());
      const Buffer one = random() % 3 == 0 ? message_frame(payload + "x")
                                           : frame(type, size, random() % 8 == 0 ? 1 : 0, random() % 32, 0, payload);
      append(bytes, one.data(), one.size());
    }
    if (random() % 2 == 0) {
      for (size_t i = random() % 5; i > 0; --i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    if (!bytes.empty()) static_cast<void>(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
    server_->poll(0);
    server_->poll(0);
  }
  ASSERT_TRUE(honest.send(as_bytes("survived")).ok());
  ASSERT_TRUE(poll_until([&] { return !owner_.messages.empty(); }));
  EXPECT_EQ(owner_.messages[0], "survived");
  ASSERT_TRUE(poll_until([&] { return served_.connections.size() == 1; }))
      << "the server keeps connections that sent malformed bytes";
  EXPECT_GT(server_->counters().connections_malformed.read(), 10u)
      << "the bytes are not malformed enough to test anything";
}

// ---- threads and time -----------------------------------------------------------------------------------------------

TEST_F(TcpTest, WakeEndsASleepFromOtherThreads) {
  TransportOptions options;
  options.spin_ns = 0;
  Transport& transport = add(options);
  constexpr int kThreads = 3;
  constexpr int kEach = 2'000;
  std::atomic<int> posted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        posted.fetch_add(1, std::memory_order_relaxed);  // relaxed: wake() orders it
        transport.wake();
        if (i % 16 == 0) std::this_thread::yield();
      }
    });
  }
  // A lost wake-up blocks here until the time limit of the test.
  while (posted.load(std::memory_order_relaxed) < kThreads * kEach) transport.poll(kForever);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(TcpTest, AWakeIsNotLostOnTheWayToSleep) {
  TransportOptions options;
  options.spin_ns = 0;
  Transport& transport = add(options);
  constexpr int kWakes = 20'000;
  std::atomic<int> posted{0};
  std::atomic<int> seen{0};
  // Each wake-up comes just when the poller begins its next round, and no other event ends that round.
  std::thread waker([&] {
    for (int i = 1; i <= kWakes; ++i) {
      posted.store(i, std::memory_order_relaxed);  // relaxed: wake() orders it
      transport.wake();
      while (seen.load(std::memory_order_acquire) < i) RealEnv::spin_pause();  // acquire: not before the round
    }
  });
  while (seen.load(std::memory_order_relaxed) < kWakes) {
    transport.poll(kForever);
    seen.store(posted.load(std::memory_order_relaxed), std::memory_order_release);  // release: pairs with the waker
  }
  waker.join();
}

TEST_F(TcpTest, AFullSocketIsWrittenToAgainWhenThePeerHasRead) {
  TransportOptions options;
  options.window_frames = 1024;  // more bytes than the buffers of the sockets hold
  options.max_queued_bytes = 64 * 1024 * 1024;
  serve(options);
  Transport& client = add(options);
  Connection& connection = connect(client, address_, owner_);
  ASSERT_TRUE(poll_until([&] { return !owner_.connections.empty(); }));
  constexpr size_t kMessages = 600;
  const std::string text(60'000, 'x');
  for (size_t i = 0; i < kMessages; ++i) ASSERT_TRUE(connection.send(as_bytes(text)).ok());
  client.poll(0);
  EXPECT_GT(connection.queued_bytes(), 0u) << "the socket accepted all bytes; the test must send more";
  EXPECT_EQ(client.counters().credit_stalls.read(), 0u);
  served_.keep = false;
  ASSERT_TRUE(poll_until([&] { return served_.bytes >= kMessages * text.size(); }));
}

TEST_F(TcpTest, TheReasonArrivesThoughThePeerWasStillSending) {
  serve();
  Buffer bytes = frame(FrameType{77}, 16, 0, 0, 0, "");
  bytes.resize(400'000);  // the server closes before it has read these bytes
  expect_closed_as_malformed(bytes, "unknown type 77");
}

TEST_F(TcpTest, ServerThreadsShareAListenerAndServeClients) {
  constexpr size_t kThreads = 2;
  constexpr size_t kConnections = 6;
  constexpr size_t kMessages = 500;
  struct Served : Handler {
    void on_messages(Connection& connection, std::span<const Bytes> batch) override { echo(connection, batch); }
    void on_closed(Connection&, const Status&) override {}
  };
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<Served> handlers(kThreads);
  std::vector<Transport::AcceptTarget> targets;
  for (size_t i = 0; i < kThreads; ++i) {
    transports.push_back(world_.make({}));
    targets.push_back({transports[i].get(), &handlers[i]});
  }
  const auto listener = transports[0]->listen(*Address::parse("tcp://127.0.0.1:0"), targets);
  ASSERT_TRUE(listener.ok());
  const Address address = (*listener)->address();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (const auto& transport : transports) {
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) transport->poll(kForever);
    });
  }
  Transport& client = add();
  owner_.keep = false;
  for (size_t c = 0; c < kConnections; ++c) {
    Connection& connection = connect(client, address, owner_);
    for (size_t i = 0; i < kMessages; ++i) ASSERT_TRUE(connection.send(as_bytes("12345678")).ok());
  }
  EXPECT_TRUE(poll_until([&] { return owner_.bytes >= 8 * kConnections * kMessages; }));
  stop.store(true, std::memory_order_relaxed);
  for (const auto& transport : transports) transport->wake();
  for (std::thread& thread : threads) thread.join();
  for (const auto& transport : transports)
    EXPECT_EQ(transport->counters().connections_opened.read(), kConnections / kThreads);
}

TEST_F(TcpTest, PollReturnsAtItsTimeout) {
  TransportOptions options;
  options.spin_ns = 100'000;
  Transport& transport = add(options);
  for (const uint64_t timeout_ns : {50'000u, 3'000'000u}) {
    const uint64_t from = RealEnv::now_ns();
    EXPECT_EQ(transport.poll(timeout_ns), 0u);
    EXPECT_GE(RealEnv::now_ns() - from, timeout_ns);
  }
}

TEST_F(TcpTest, TheLastLookOfASpinningPollIsKnown) {
  TransportOptions options;
  options.spin_ns = kForever;
  const auto spinning = make_tcp_transport(options).value();
  const uint64_t began_ns = RealEnv::now_ns();
  EXPECT_EQ(spinning->poll(2'000'000), 0u);
  EXPECT_GT(spinning->last_look_ns(), began_ns);
  EXPECT_LE(spinning->last_look_ns(), RealEnv::now_ns());
  spinning->poll(0);
  EXPECT_EQ(spinning->last_look_ns(), 0u) << "the poll did not spin";
  options.spin_ns = 0;
  const auto sleeping = make_tcp_transport(options).value();
  EXPECT_EQ(sleeping->poll(2'000'000), 0u);
  EXPECT_EQ(sleeping->last_look_ns(), 0u) << "the poll slept";
}

TEST_F(TcpTest, OutOfFileDescriptorsTheListenerWaitsAndOthersAreServed) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer of undefined behaviour needs a free file descriptor to check objects";
#endif
  serve();
  served_.when_messages = echo;
  Transport& client = add();
  Connection& early = connect(client, address_, owner_);
  ASSERT_TRUE(poll_until([&] { return owner_.connections.size() == 1; }));
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const Fd late = raw_socket();  // accepted by the kernel, not yet by the server
  rlimit low = limit;
  low.rlim_cur = static_cast<rlim_t>(late.get()) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  static size_t logged_lines;
  logged_lines = 0;
  set_log_sink([](const LogLine& line) { logged_lines += line.message.find("EMFILE") != std::string_view::npos; });
  ASSERT_TRUE(poll_until([&] { return server_->counters().connections_refused.read() >= 1; }));
  set_log_sink(nullptr);
  EXPECT_GE(logged_lines, 1u);
  ASSERT_TRUE(early.send(as_bytes("still served")).ok());
  ASSERT_TRUE(poll_until([&] { return !owner_.messages.empty(); }));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  put(late, good_greeting());
  ASSERT_TRUE(poll_until([&] { return served_.connections.size() == 2; }));
}

TEST_F(TcpTest, AResetOfThePeerIsAnEnd) {
  serve();
  Fd fd = raw_socket();
  put(fd, good_greeting());
  ASSERT_TRUE(poll_until([&] { return !served_.connections.empty(); }));
  const linger reset{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  fd.reset();
  ASSERT_TRUE(poll_until([&] { return !served_.closed.empty(); }));
  EXPECT_EQ(served_.closed[0].code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace loam::net
