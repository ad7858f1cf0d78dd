#include "common/rpc/request_window.h"

#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace loam::rpc {
namespace {

using Kind = RequestWindow::Kind;

Buffer bytes_of(uint64_t number) {
  Buffer bytes(sizeof(number));
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

uint64_t number_in(const Buffer& bytes) {
  uint64_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

class RequestWindowTest : public ::testing::Test {
 protected:
  uint64_t add(Kind kind = Kind::kResend, uint64_t deadline_ns = kNoDeadline) {
    const uint64_t sequence = window_.next();
    window_.add(kind, nullptr, sequence, deadline_ns, bytes_of(sequence));
    return sequence;
  }
  /// Sends all requests that may be sent now, and returns their numbers.
  std::vector<uint64_t> send() {
    std::vector<uint64_t> sent;
    while (RequestWindow::Request* request = window_.next_to_send()) {
      EXPECT_EQ(number_in(request->bytes), window_.sending());
      sent.push_back(window_.sending());
      window_.mark_sent();
    }
    return sent;
  }
  std::vector<uint64_t> lose(bool established = true) {
    std::vector<RequestWindow::FailedRequest> ended;
    window_.restart(established, ended);
    std::vector<uint64_t> numbers;
    for (const auto& request : ended) numbers.push_back(request.sequence);
    return numbers;
  }

  RequestWindow window_{4};
};

using Numbers = std::vector<uint64_t>;

TEST_F(RequestWindowTest, BeginsWithTheFirstSequence) {
  RequestWindow window(4, 1'000);
  EXPECT_TRUE(window.empty());
  EXPECT_TRUE(window.can_send_next());
  for (uint64_t i = 0; i < 6; ++i) window.add(Kind::kResend, nullptr, 0, kNoDeadline, bytes_of(window.next()));
  Numbers sent;
  while (RequestWindow::Request* request = window.next_to_send()) {
    sent.push_back(number_in(request->bytes));
    EXPECT_FALSE(window.mark_sent());
  }
  EXPECT_EQ(sent, (Numbers{1'000, 1'001, 1'002, 1'003}));
  EXPECT_TRUE(window.may_have_arrived(1'003));
  EXPECT_FALSE(window.may_have_arrived(1'004));
  window.finish(1'000);
  ASSERT_NE(window.next_to_send(), nullptr);
  EXPECT_EQ(window.sending(), 1'004u);
  EXPECT_EQ(window.next(), 1'006u);
}

TEST_F(RequestWindowTest, CanSendNextReportsRoomInTheWindow) {
  EXPECT_TRUE(window_.can_send_next());
  add();
  EXPECT_FALSE(window_.can_send_next()) << "another request waits before it";
  send();
  EXPECT_TRUE(window_.can_send_next());
  for (int i = 0; i < 3; ++i) add();
  send();
  EXPECT_FALSE(window_.can_send_next()) << "the window is full";
  window_.finish(1);
  EXPECT_TRUE(window_.can_send_next());
  lose();
  EXPECT_FALSE(window_.can_send_next()) << "unanswered requests are sent again first";
}

TEST_F(RequestWindowTest, NoRequestIsSentBeyondTheWindow) {
  for (int i = 0; i < 7; ++i) add();
  EXPECT_EQ(send(), (Numbers{1, 2, 3, 4}));
  window_.finish(3);
  EXPECT_EQ(send(), (Numbers{})) << "the oldest request has no reply yet";
  window_.finish(1);
  EXPECT_EQ(send(), (Numbers{5}));
  window_.finish(2);
  EXPECT_EQ(send(), (Numbers{6, 7})) << "request 3 is already answered";
  EXPECT_EQ(window_.open(), 4u);
}

TEST_F(RequestWindowTest, UnansweredRequestsAreResentInOrderBeforeNewOnes) {
  for (int i = 0; i < 3; ++i) add();
  EXPECT_EQ(send(), (Numbers{1, 2, 3}));
  window_.finish(2);
  EXPECT_TRUE(lose().empty());
  add();
  EXPECT_EQ(send(), (Numbers{1, 3, 4}));
  EXPECT_EQ(window_.unsent_bytes(), 0u);
}

TEST_F(RequestWindowTest, SentAtMostOnceRequestsEndWithTheirConnection) {
  add();
  const uint64_t once = add(Kind::kAtMostOnce);
  EXPECT_EQ(send(), (Numbers{1, 2}));
  EXPECT_NE(window_.find(once), nullptr);
  const uint64_t unsent = add(Kind::kAtMostOnce);
  EXPECT_EQ(lose(), (Numbers{once}));
  EXPECT_EQ(send(), (Numbers{1, unsent}));
}

TEST_F(RequestWindowTest, AtMostOnceRequestsDoNotBlockTheWindow) {
  const uint64_t scan = add(Kind::kStream, 1'000);
  EXPECT_EQ(send(), (Numbers{scan}));
  for (int i = 0; i < 100; ++i) {
    const uint64_t sequence = add();
    EXPECT_EQ(send(), (Numbers{sequence}));
    window_.finish(sequence);
  }
  std::vector<RequestWindow::FailedRequest> ended;
  EXPECT_EQ(window_.expire(2'000, ended), kNoDeadline) << "the deadline of a stream counts only until it is sent";
  EXPECT_TRUE(ended.empty());
  window_.finish(scan);
  EXPECT_TRUE(window_.empty());
}

TEST_F(RequestWindowTest, AddSentBypassesTheWindow) {
  for (int i = 0; i < 5; ++i) add();
  EXPECT_EQ(send(), (Numbers{1, 2, 3, 4}));
  const uint64_t aside = window_.next();
  window_.add_sent(nullptr, aside, 50);
  EXPECT_NE(window_.find(aside), nullptr);
  window_.finish(1);
  EXPECT_EQ(send(), (Numbers{5}));
  EXPECT_EQ(lose(), (Numbers{aside}));
  for (uint64_t sequence : send()) window_.finish(sequence);
  window_.add_sent(nullptr, 0, 50);
  std::vector<RequestWindow::FailedRequest> ended;
  EXPECT_EQ(window_.expire(50, ended), kNoDeadline);
  EXPECT_EQ(ended.size(), 1u);
  EXPECT_TRUE(window_.empty());
}

// Requests with lower numbers wait, and this one may have arrived all the same.
TEST_F(RequestWindowTest, ARequestSentAheadOfOthersMayHaveArrived) {
  for (const bool lost : {false, true}) {
    for (const bool established : {false, true}) {
      RequestWindow window(4);
      for (int i = 0; i < 5; ++i) window.add(Kind::kResend, nullptr, 0, kNoDeadline, bytes_of(window.next()));
      while (window.next_to_send() != nullptr) window.mark_sent();
      const uint64_t ahead = window.next();
      window.add_sent(nullptr, 0, 50);
      EXPECT_TRUE(window.may_have_arrived(ahead));
      EXPECT_FALSE(window.may_have_arrived(5));
      std::vector<RequestWindow::FailedRequest> ended;
      lost ? window.restart(established, ended) : static_cast<void>(window.expire(50, ended));
      ASSERT_EQ(ended.size(), 1u);
      EXPECT_EQ(ended[0].sequence, ahead);
      EXPECT_EQ(ended[0].executed, lost && !established ? ExecutionStatus::kNotSent : ExecutionStatus::kUnknown);
    }
  }
}

TEST_F(RequestWindowTest, OneWayMessagesAreLostWithTheirConnection) {
  for (int i = 0; i < 4; ++i) add();
  send();
  add(Kind::kOneWay);
  EXPECT_TRUE(lose().empty());
  EXPECT_EQ(send(), (Numbers{1, 2, 3, 4}));
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) window_.finish(sequence);
  EXPECT_TRUE(window_.empty());
  add(Kind::kOneWay);
  EXPECT_EQ(send(), (Numbers{6}));
  EXPECT_TRUE(window_.empty()) << "one-way requests have no reply";
}

TEST_F(RequestWindowTest, ExpiredRequestsReportWhetherTheyMayHaveArrived) {
  for (uint64_t deadline = 10; deadline < 16; ++deadline) add(Kind::kResend, deadline);
  send();
  std::vector<RequestWindow::FailedRequest> ended;
  EXPECT_EQ(window_.expire(10, ended), 11u);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].executed, ExecutionStatus::kUnknown);
  EXPECT_EQ(send(), (Numbers{5}));
  lose(false);
  ended.clear();
  EXPECT_EQ(window_.expire(12, ended), 13u);
  EXPECT_EQ(ended[0].executed, ExecutionStatus::kNotSent) << "that connection was never established";
  send();
  lose(true);
  ended.clear();
  EXPECT_EQ(window_.expire(20, ended), kNoDeadline);
  ASSERT_EQ(ended.size(), 3u);
  for (const auto& request : ended) EXPECT_EQ(request.executed, ExecutionStatus::kUnknown) << request.sequence;
  EXPECT_EQ(window_.unsent_bytes(), 0u);
}

TEST_F(RequestWindowTest, RequestsThatEndUnsentAreNeverSent) {
  for (int i = 0; i < 100; ++i) add(Kind::kResend, 10);
  std::vector<RequestWindow::FailedRequest> ended;
  window_.expire(10, ended);
  EXPECT_EQ(ended.size(), 100u);
  EXPECT_EQ(window_.unsent_bytes(), 0u);
  for (int i = 0; i < 100; ++i) add();  // reuses the places of the ended requests in the ring
  EXPECT_EQ(send(), (Numbers{101, 102, 103, 104}));
}

TEST_F(RequestWindowTest, RefusedRequestsEndWithTheNextExpiry) {
  add();
  add();
  ASSERT_NE(window_.next_to_send(), nullptr);
  window_.mark_too_large();
  EXPECT_EQ(send(), (Numbers{2}));
  std::vector<RequestWindow::FailedRequest> ended;
  window_.expire(0, ended);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_TRUE(ended[0].too_large);
  EXPECT_EQ(ended[0].executed, ExecutionStatus::kNotSent);
  EXPECT_EQ(window_.unsent_bytes(), 0u);
}

TEST_F(RequestWindowTest, TheQueueIsBounded) {
  size_t taken = 0;
  for (; !window_.full(); ++taken) add();
  EXPECT_EQ(taken, 4 + kMaxWaitingRequests);
  EXPECT_EQ(send().size(), 4u);
  EXPECT_TRUE(window_.full());
  window_.finish(1);
  EXPECT_FALSE(window_.full());
}

TEST_F(RequestWindowTest, BuffersAreReused) {
  const Buffer first = bytes_of(1);
  Buffer bytes = first;
  const std::byte* const memory = bytes.data();
  window_.add(Kind::kResend, nullptr, 0, kNoDeadline, std::move(bytes));
  send();
  window_.finish(1);
  bytes = window_.acquire_buffer();
  EXPECT_EQ(bytes.data(), memory);
  EXPECT_TRUE(bytes.empty());
  bytes.resize(kMaxPooledBytes + 1);
  window_.release_buffer(std::move(bytes));
  EXPECT_EQ(window_.acquire_buffer().capacity(), 0u) << "large buffers are not kept";
}

/// A model of a server with a reply window (R3, idempotent requests within a session) whose connections are lost at
/// random. The test checks that every request is executed once, in the order of the numbers, and is answered.
TEST(RequestWindowModelTest, EachRequestIsExecutedOnceOverAnyLosses) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr size_t kWindow = 8;
  RequestWindow window(kWindow);
  std::deque<uint64_t> to_server, to_client;
  std::set<uint64_t> executed, answered;
  uint64_t newest_executed = 0;
  constexpr uint64_t kRequests = 20'000;
  for (uint64_t steps = 0; answered.size() < kRequests; ++steps) {
    ASSERT_LT(steps, kRequests * 100);
    switch (random() % 8) {
      case 0:
      case 1:
        if (window.next() <= kRequests && !window.full()) {
          window.add(Kind::kResend, nullptr, 0, kNoDeadline, bytes_of(window.next()));
        }
        break;
      case 2:
      case 3:
        while (RequestWindow::Request* request = window.next_to_send()) {
          to_server.push_back(number_in(request->bytes));
          window.mark_sent();
        }
        break;
      case 4:
      case 5:
        if (to_server.empty()) break;
        if (executed.insert(to_server.front()).second) {
          ASSERT_GT(to_server.front(), newest_executed) << "the server has executed a later request before";
          newest_executed = to_server.front();
        } else {
          ASSERT_LT(newest_executed - to_server.front(), kWindow)
              << "the reply window of the server no longer covers the request";
        }
        to_client.push_back(to_server.front());
        to_server.pop_front();
        break;
      case 6:
        if (to_client.empty()) break;
        ASSERT_NE(window.find(to_client.front()), nullptr);
        window.finish(to_client.front());
        ASSERT_TRUE(answered.insert(to_client.front()).second);
        to_client.pop_front();
        break;
      default:
        if (random() % 20 != 0) break;
        std::vector<RequestWindow::FailedRequest> ended;
        window.restart(true, ended);
        ASSERT_TRUE(ended.empty());
        to_server.clear();
        to_client.clear();
    }
  }
  EXPECT_EQ(executed.size(), kRequests);
  EXPECT_TRUE(window.empty());
}

}  // namespace
}  // namespace loam::rpc
