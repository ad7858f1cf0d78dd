// A session changes its connection repeatedly between two network threads and sends the same requests on both. Each
// request is executed once, and every reply to it has the same bytes (R3).
#include <algorithm>
#include <barrier>
#include <mutex>
#include <thread>
#include <vector>

#include "common/testing/random.h"
#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

/// The test runs at least kRounds rounds, and more until kOvertaken connections lost their session to a newer one while
/// they were in use. That takes two cores that are free at the same time.
constexpr uint64_t kRounds = 300;
constexpr uint64_t kOvertaken = 20;
constexpr uint64_t kDeadlineNs = 20'000'000'000;
constexpr uint64_t kConnectionsPerRound = 50;
constexpr uint64_t kRequestsPerRound = 6;

class SessionStressTest : public NodeFixture {
 protected:
  /// The first reply to each request, as bytes.
  void check_answers(const RecordingPeer& peer) {
    const std::lock_guard lock(mutex_);
    for (const Buffer& message : peer.sent) {
      if (HasFatalFailure()) return;
      ByteReader reader(message);
      wire::Envelope envelope;
      ASSERT_TRUE(wire::decode_envelope(reader, envelope).ok());
      if (envelope.opcode == wire::Opcode::kAttachReply) continue;
      ASSERT_EQ(wire::to_string(envelope.opcode), wire::to_string(wire::Opcode::kPlainWriteReply));
      const auto [first, fresh] = answers_.emplace(envelope.sequence, message);
      ASSERT_EQ(first->second, message) << "request " << envelope.sequence << " was executed twice";
      if (!fresh) ++repetitions_;
      wire::PlainWriteReply reply;
      ASSERT_TRUE(wire::decode_body(reader, reply).ok());
      ASSERT_EQ(reply.results.at(0).code, StatusCode::kOk);
    }
  }

  /// The loop of one network thread: it opens connections of the same session and sends the round's requests on each.
  template <class Barrier>
  void network_thread(size_t number, Barrier& round) {
    EpochThread epoch(epochs, "network " + std::to_string(number));
    ThreadContext own(epoch, number);
    Executor on_thread(*registry, stress_sessions_, scans, own);
    testing::Random random(number + 1);
    uint64_t connections = 0;
    const Buffer bytes = row(1);
    for (uint64_t r = 0;; ++r) {
      round.arrive_and_wait();
      if (rounds_ == r) return;
      for (uint64_t c = 0; c < kConnectionsPerRound; ++c) {
        RecordingPeer peer(2 * ++connections + number);
        std::vector<Buffer> messages(1);
        wire::encode_message(wire::Attach{SessionId(5), 1, kIncarnation}, 1'000'000'000 + peer.id(), messages[0]);
        for (uint64_t q = 1; q <= kRequestsPerRound; ++q) {
          const uint64_t sequence = r * kRequestsPerRound + q;
          const wire::PlainWrite insert{{{wire::WriteKind::kInsert, {}, {kCounters, Key(sequence)}, {}, bytes}}};
          wire::encode_message(insert, sequence, messages.emplace_back());
        }
        // The first requests may arrive in one batch with kAttach.
        const std::vector<Bytes> views(messages.begin(), messages.end());
        for (size_t from = 0; from < views.size();) {
          const size_t size = std::min<size_t>(1 + random.below(4), views.size() - from);
          on_thread.run(peer, std::span(views).subspan(from, size));
          from += size;
          if (random.one_in(4)) std::this_thread::yield();  // lets the other thread run on a shared core
        }
        check_answers(peer);
        // Relaxed, here and below: a statistic.
        if (!peer.closed.ok()) overtaken_.fetch_add(1, std::memory_order_relaxed);
        // A connection that was overtaken before it took the session's lock is not attached.
        if (peer.attached()) stress_sessions_.detach(peer.session(), peer.id());
      }
    }
  }
  std::mutex mutex_;
  std::map<uint64_t, Buffer> answers_;  // guarded by mutex_
  uint64_t repetitions_ = 0;            // guarded by mutex_
  std::atomic<uint64_t> overtaken_{0};
  uint64_t rounds_ = 0;  // written between rounds
  SessionTable stress_sessions_{intent_pool, [](PeerId, const Status&) {}};
};

TEST_F(SessionStressTest, EachRequestIsExecutedOnce) {
  enter_service();
  const uint64_t deadline_ns = Env::now_ns() + kDeadlineNs;
  std::barrier round(2, [&]() noexcept {
    const bool enough = overtaken_.load(std::memory_order_relaxed) >= kOvertaken || Env::now_ns() > deadline_ns;
    if (rounds_ < kRounds || !enough) ++rounds_;
  });
  {
    const std::jthread other([&] { network_thread(1, round); });
    network_thread(0, round);
  }
  EXPECT_EQ(answers_.size(), rounds_ * kRequestsPerRound);
  EXPECT_GT(repetitions_, 0u);
  EXPECT_GE(overtaken_.load(std::memory_order_relaxed), kOvertaken) << "connections that lost their session in use";
}

}  // namespace
}  // namespace loam::storage
