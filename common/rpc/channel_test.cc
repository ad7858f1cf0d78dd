// The execution status that a channel reports for requests to a server that answers, refuses, or closes connections.
#include "common/rpc/channel.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/env.h"
#include "common/net/make_transport.h"
#include "common/net/transport/address.h"
#include "common/testing/eventually.h"

namespace loam::rpc {
namespace {

using testing::eventually;
using wire::Opcode;

/// A server that calls `script` for each message. The test polls it.
class Server final : public net::Handler {
 public:
  using Script = std::function<void(net::Connection&, const wire::Envelope&)>;

  Server() : transport_(net::make_transport(net::Scheme::kTcp).value()) {
    listener_ = transport_->listen(net::Address::parse("tcp://127.0.0.1:0").value(), *this).value();
  }

  std::string address() const { return listener_->address().to_string(); }
  void poll() { transport_->poll(0); }

  template <wire::Message M>
  static void answer(net::Connection& connection, const wire::Envelope& envelope, const M& message) {
    Buffer out;
    wire::encode_message(message, envelope.sequence, out);
    EXPECT_TRUE(connection.send(out).ok());
  }
  static void refuse(net::Connection& connection, const wire::Envelope& envelope, StatusCode code) {
    answer(connection, envelope, wire::Error{Status(code, "the server says so"), 0});
  }

  void on_connected(net::Connection&) override { ++connections; }
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override {
    for (const Bytes message : messages) {
      ByteReader reader(message);
      wire::Envelope envelope;
      ASSERT_TRUE(wire::decode_envelope(reader, envelope).ok());
      ++received;
      if (script) script(connection, envelope);
      if (std::exchange(hung_up, false)) return;
    }
  }
  void on_closed(net::Connection&, const Status&) override {}

  void hang_up(net::Connection& connection) {
    hung_up = true;
    connection.close({StatusCode::kUnavailable, "the server hangs up"});
  }

  Script script;
  int connections = 0;
  int received = 0;
  bool hung_up = false;

 private:
  const std::unique_ptr<net::Transport> transport_;
  net::Listener* listener_ = nullptr;
};

/// Keeps the outcome of each of its requests.
class Outcomes final : public ResponseHandler {
 public:
  struct Outcome {
    ExecutionStatus executed = ExecutionStatus::kExecuted;
    StatusCode code = StatusCode::kOk;
    bool operator==(const Outcome&) const = default;
  };

  Status on_reply(uint64_t token, Opcode opcode, ByteReader&) override {
    if (opcode != Opcode::kPong) return unexpected_reply(opcode);
    record(token, {});
    return ok_status();
  }
  void on_failure(uint64_t token, const Status& status, ExecutionStatus executed) override {
    record(token, {executed, status.code()});
  }
  size_t count() const { return of_.size(); }
  Outcome of(uint64_t token) const { return of_.at(token); }

 private:
  void record(uint64_t token, Outcome outcome) {
    EXPECT_TRUE(of_.emplace(token, outcome).second) << "request " << token << " ended twice";
  }
  std::map<uint64_t, Outcome> of_;
};

std::ostream& operator<<(std::ostream& out, const Outcomes::Outcome& outcome) {
  return out << to_string(outcome.executed) << ", " << to_string(outcome.code);
}

class ChannelTest : public ::testing::Test {
 protected:
  ChannelTest() : transport_(net::make_transport(net::Scheme::kTcp).value()) { connect(server_.address()); }
  ~ChannelTest() override {
    channel_->close({StatusCode::kCancelled, "the test ends"});
    EXPECT_TRUE(eventually([&] {
      round();
      return channel_->idle();
    }));
  }

  void connect(const std::string& address) {
    Channel::Options options;
    options.address = address;
    options.name = "the server";
    channel_ = std::make_unique<Channel>(*transport_, std::move(options), [this] { return now_ns_; });
  }
  void round() {
    transport_->poll(0);
    server_.poll();
    now_ns_ += kRoundNs;
    channel_->expire(now_ns_);
  }
  template <wire::Message M = wire::Ping>
  void request(uint64_t token, const M& message = {}, uint64_t timeout_ns = kNoDeadline) {
    const uint64_t deadline_ns = timeout_ns == kNoDeadline ? kNoDeadline : now_ns_ + timeout_ns;
    ASSERT_TRUE(channel_->request(message, &outcomes_, token, deadline_ns).ok());
  }
  /// Runs until `count` requests have ended.
  void run(size_t count) {
    ASSERT_TRUE(eventually([&] {
      round();
      return outcomes_.count() >= count;
    }));
  }

  /// Time by which the channel's clock advances in each round.
  static constexpr uint64_t kRoundNs = 1'000'000;

  uint64_t now_ns_ = 1;
  Server server_;
  const std::unique_ptr<net::Transport> transport_;
  std::unique_ptr<Channel> channel_;
  Outcomes outcomes_;
};

using Outcome = Outcomes::Outcome;

TEST_F(ChannelTest, AnAnsweredRequestWasExecuted) {
  server_.script = [&](auto& connection, const auto& envelope) { Server::answer(connection, envelope, wire::Pong{}); };
  request(1);
  run(1);
  EXPECT_EQ(outcomes_.of(1), Outcome());
}

TEST_F(ChannelTest, ARefusedRequestHasNoEffect) {
  server_.script = [&](auto& connection, const auto& envelope) {
    Server::refuse(connection, envelope, StatusCode::kOverloaded);
  };
  request(1);
  run(1);
  EXPECT_EQ(outcomes_.of(1), (Outcome{ExecutionStatus::kRefused, StatusCode::kOverloaded}));
}

TEST_F(ChannelTest, ARequestOutsideOfTheReplyWindowIsUnknown) {
  server_.script = [&](auto& connection, const auto& envelope) {
    Server::refuse(connection, envelope, StatusCode::kUnknownOutcome);
  };
  request(1);
  run(1);
  EXPECT_EQ(outcomes_.of(1), (Outcome{ExecutionStatus::kUnknown, StatusCode::kUnknownOutcome}));
}

TEST_F(ChannelTest, ARepeatedRequestIsExecutedOnceItIsAnswered) {
  server_.script = [&](auto& connection, const auto& envelope) {
    if (server_.connections == 1) return server_.hang_up(connection);
    Server::answer(connection, envelope, wire::Pong{});
  };
  request(1);
  run(1);
  EXPECT_EQ(outcomes_.of(1), Outcome());
  EXPECT_EQ(server_.received, 2);
}

// The server drops its reply window when it ends the session. So it cannot tell whether it has executed a request that
// arrived over an earlier connection. Nor does it keep a refusal for which it had no reply window.
TEST_F(ChannelTest, AForgottenRefusalIsUnknownIfTheRequestWasSentOverAnEarlierConnection) {
  StatusCode code{};
  bool hang_up = false;
  server_.script = [&](auto& connection, const auto& envelope) {
    if (std::exchange(hang_up, false)) return server_.hang_up(connection);
    Server::refuse(connection, envelope, code);
  };
  uint64_t token = 0;
  for (const StatusCode next : {StatusCode::kFenced, StatusCode::kOverloaded}) {
    code = next;
    hang_up = true;
    request(++token);
    run(token);
    EXPECT_EQ(outcomes_.of(token), (Outcome{ExecutionStatus::kUnknown, code}));
    request(++token);
    run(token);
    EXPECT_EQ(outcomes_.of(token), (Outcome{ExecutionStatus::kRefused, code}))
        << "this request was never sent over an earlier connection";
  }
}

TEST_F(ChannelTest, WithoutAConnectionARequestIsNotSent) {
  const std::string free_address = Server().address();  // the server is destroyed, so no process listens at its port
  connect(free_address);
  request(1, wire::Ping{}, 20 * kRoundNs);
  run(1);
  EXPECT_EQ(outcomes_.of(1), (Outcome{ExecutionStatus::kNotSent, StatusCode::kUnavailable}));
}

TEST_F(ChannelTest, ARequestWithoutAReplyInTimeIsUnknown) {
  request(1);
  ASSERT_TRUE(eventually([&] {
    round();
    return server_.received == 1;
  }));
  request(2, wire::Ping{}, 20 * kRoundNs);
  run(1);
  EXPECT_EQ(outcomes_.of(2), (Outcome{ExecutionStatus::kUnknown, StatusCode::kTimeout}));
}

TEST_F(ChannelTest, AtMostOnceRequestsAreUnknownWhenTheirConnectionIsLost) {
  server_.script = [&](auto& connection, const auto&) { server_.hang_up(connection); };
  request(1, wire::GetCatalog{});
  run(1);
  EXPECT_EQ(outcomes_.of(1), (Outcome{ExecutionStatus::kUnknown, StatusCode::kUnavailable}));
}

TEST_F(ChannelTest, AMalformedReplyIsUnknownAndEndsTheConnection) {
  server_.script = [&](auto& connection, const auto& envelope) {
    if (server_.connections > 1) return Server::answer(connection, envelope, wire::Pong{});
    Server::answer(connection, envelope, wire::CloseSessionReply{});
  };
  request(1);
  run(1);
  EXPECT_EQ(outcomes_.of(1), (Outcome{ExecutionStatus::kUnknown, StatusCode::kMalformed}));
  request(2);
  run(2);
  EXPECT_EQ(outcomes_.of(2), Outcome());
  EXPECT_EQ(server_.connections, 2);
}

TEST_F(ChannelTest, AnErrorWithoutACodeIsUnknownAndEndsTheConnection) {
  server_.script = [&](auto& connection, const auto& envelope) {
    Server::answer(connection, envelope, wire::Error{ok_status(), 0});
  };
  request(1);
  run(1);
  EXPECT_EQ(outcomes_.of(1), (Outcome{ExecutionStatus::kUnknown, StatusCode::kMalformed}));
}

TEST_F(ChannelTest, CloseReportsWhichRequestsWereSent) {
  request(1);
  ASSERT_TRUE(eventually([&] {
    round();
    return server_.received == 1;
  }));
  request(2);  // leaves with the next round
  channel_->close({StatusCode::kCancelled, "closed"});
  run(2);
  EXPECT_EQ(outcomes_.of(1), (Outcome{ExecutionStatus::kUnknown, StatusCode::kCancelled}));
  EXPECT_EQ(outcomes_.of(2).code, StatusCode::kCancelled);
  EXPECT_NE(outcomes_.of(2).executed, ExecutionStatus::kRefused);
  EXPECT_EQ(channel_->request(wire::Ping{}, &outcomes_, 3, kNoDeadline).code(), StatusCode::kCancelled);
}

TEST_F(ChannelTest, CancelledRequestsReportNothing) {
  server_.script = [&](auto& connection, const auto& envelope) { Server::answer(connection, envelope, wire::Pong{}); };
  const auto sequence = channel_->request(wire::Ping{}, &outcomes_, 1, kNoDeadline);
  ASSERT_TRUE(sequence.ok());
  channel_->cancel(*sequence);
  request(2);
  run(1);
  EXPECT_EQ(outcomes_.count(), 1u);
  EXPECT_EQ(outcomes_.of(2), Outcome());
}

}  // namespace
}  // namespace loam::rpc
