// Truncation and rewrites of the commit log [R4, outcomes from the commit log; R11, commit log and restart of the
// commit manager; decision 0021].
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "commit-manager/src/core/committed_ids.h"
#include "commit-manager/testing/commits_fixture.h"

namespace loam::commit {
namespace {

using wire::Begin;
using wire::BeginReply;
using wire::Complete;
using wire::CompleteReply;
using wire::Outcome;

constexpr uint64_t kLogBlock = CommittedIds::kBlockIds;

/// Two nodes with shards; every commit is on the disk at once.
struct CommitLogTest : CommitsTest {
  void SetUp() override {
    CoreOptions options = options_of_test();
    options.initial_nodes = 2;
    log.at_once = true;
    h = std::make_unique<CoreHarness>(options, nullptr, Bytes{}, &log);
    node = h->node("tcp://a:1");
    second = h->node("tcp://b:1");
    h->acknowledge_all(node);
    client = h->client();
  }

  /// Commits `count` transactions in messages of many.
  void commit_many(uint64_t count) {
    while (count > 0) {
      const auto batch = static_cast<uint32_t>(std::min<uint64_t>(count, 1'000));
      const auto begun = h->call<BeginReply>(client, Begin{batch, false});
      ASSERT_TRUE(begun.ok()) << begun.error.to_string();
      Complete message;
      for (uint32_t i = 0; i < batch; ++i) message.outcomes.push_back({TransactionId(begun->first_id.value + i), true});
      ASSERT_TRUE(h->call<CompleteReply>(client, message).ok());
      count -= batch;
    }
  }
  /// Both nodes read and acknowledge everything; time passes.
  void run(uint64_t ns, std::initializer_list<PeerId> nodes) {
    for (uint64_t passed = 0; passed < ns; passed += kLease / 4) {
      run_alive(kLease / 4, nodes);
      for (const PeerId peer : nodes) h->acknowledge_all(peer);
    }
  }
  uint64_t cut() { return h->core.statistics().log_truncated_up_to; }

  PeerId second;
};

TEST_F(CommitLogTest, TruncatesAfterAllAcknowledgementsAndTheRetentionTime) {
  commit_many(2 * kLogBlock + 10);
  run(9 * kSecond, {node, second});
  EXPECT_EQ(cut(), 0u) << "a client may ask for ten seconds";
  EXPECT_EQ(outcome(1), Outcome::kCommitted);
  run(3 * kSecond, {node, second});
  EXPECT_EQ(cut(), 2 * kLogBlock - 1) << "the last block is not full";
  EXPECT_EQ(outcome(1), Outcome::kForgotten);
  EXPECT_EQ(outcome(2 * kLogBlock), Outcome::kCommitted);
  h->core.check_invariants();
}

TEST_F(CommitLogTest, WaitsForANodeThatHasNotAcknowledged) {
  commit_many(2 * kLogBlock);
  for (int i = 0; i < 60; ++i) {
    run_alive(kLease / 4, {node, second});
    h->acknowledge_all(node);
  }
  EXPECT_EQ(cut(), 0u) << "the second one may name intents of them";
  run(kSecond * 2, {node, second});
  EXPECT_EQ(cut(), 2 * kLogBlock - 1);
}

TEST_F(CommitLogTest, UnreachableNodeDelaysOnlyUnacknowledgedIds) {
  commit_many(kLogBlock);
  run(kSecond, {node, second});
  h->core.on_peer_disconnected(second);
  commit_many(kLogBlock);
  run(20 * kSecond, {node});
  EXPECT_EQ(h->core.statistics().nodes_unreachable, 1u);
  EXPECT_EQ(cut(), kLogBlock - 1);
  EXPECT_EQ(outcome(kLogBlock + 1), Outcome::kCommitted);
  second = h->node("tcp://b:1", Incarnation(2));
  run(2 * kSecond, {node, second});
  EXPECT_EQ(cut(), 2 * kLogBlock - 1);
}

TEST_F(CommitLogTest, LostNodeDelaysNoTruncation) {
  commit_many(kLogBlock);
  h->core.on_peer_disconnected(second);
  run(20 * kSecond, {node});
  EXPECT_EQ(cut(), 0u);
  second = h->node("tcp://b:1");
  ASSERT_EQ(h->core.nodes()[1].info.state, wire::NodeState::kLost);
  h->core.accept_loss(NodeId(2), [](const Status&) {});
  h->acknowledge_all(second);
  ASSERT_EQ(h->core.nodes()[1].info.state, wire::NodeState::kLive);
  run(2 * kSecond, {node, second});
  EXPECT_EQ(cut(), kLogBlock - 1) << "it has acknowledged as any other";
}

TEST_F(CommitLogTest, AnAcknowledgementIsOfOneIncarnation) {
  commit_many(kLogBlock);
  run(kSecond, {node, second});
  h->core.on_peer_disconnected(second);
  run(kLeaseExpiryNs, {node});
  second = h->node("tcp://b:1");
  h->core.accept_loss(NodeId(2), [](const Status&) {});
  const auto told = h->newest<wire::AcceptLoss>(second);
  ASSERT_TRUE(told.ok());
  h->deliver(second, CoreHarness::encoded(wire::AcceptLossReply{}, told.sequence));
  for (int i = 0; i < 40; ++i) {
    run_alive(kLease / 4, {node, second});
    h->acknowledge_all(node);
  }
  EXPECT_EQ(cut(), 0u) << "the new process has acknowledged nothing";
  run(2 * kSecond, {node, second});
  EXPECT_EQ(cut(), kLogBlock - 1);
}

TEST_F(CommitLogTest, AnOpenIdHoldsUpItsBlockAlone) {
  commit_many(kLogBlock + 5);
  const auto open = h->call<BeginReply>(client, Begin{1, false});
  ASSERT_TRUE(open.ok());
  commit_many(2 * kLogBlock);
  run(20 * kSecond, {node, second});
  EXPECT_EQ(cut(), 3 * kLogBlock - 1);
  EXPECT_EQ(outcome(1), Outcome::kForgotten);
  EXPECT_EQ(outcome(kLogBlock + 1), Outcome::kCommitted);
  EXPECT_EQ(outcome(2 * kLogBlock), Outcome::kForgotten);
  EXPECT_EQ(outcome(open->first_id.value), Outcome::kPending);
  ASSERT_TRUE(h->call<CompleteReply>(client, commit_of({open->first_id.value})).ok());
  EXPECT_EQ(outcome(open->first_id.value), Outcome::kCommitted);
  run(20 * kSecond, {node, second});
  EXPECT_EQ(outcome(kLogBlock + 1), Outcome::kForgotten);
  h->core.check_invariants();
}

TEST_F(CommitLogTest, DoesNotTruncateUnflushedCommits) {
  log.at_once = false;
  const auto begun = h->call<BeginReply>(client, Begin{1, false});
  h->post(client, commit_of({begun->first_id.value}));
  log.accept(h->core, 1);
  h->outbox.sent[client].clear();
  for (uint64_t id = 2; id <= kLogBlock; id += 512) {
    const auto aborted = h->call<BeginReply>(client, Begin{512, false});
    Complete message;
    for (uint32_t i = 0; i < 512; ++i) message.outcomes.push_back({TransactionId(aborted->first_id.value + i), false});
    ASSERT_TRUE(h->call<CompleteReply>(client, message).ok());
  }
  run(20 * kSecond, {node, second});
  EXPECT_EQ(cut(), 0u);
  log.finish(h->core);
  run(2 * kSecond, {node, second});
  EXPECT_EQ(cut(), kLogBlock - 1);
}

TEST_F(CommitLogTest, RewritesTheLogWhenItHasGrown) {
  log.bytes_per_commit = 1'024;
  log.at_once = false;
  uint64_t commits = 0;
  const auto fill = [&](uint64_t count) {  // one in eight is aborted, so that ranges are short
    for (uint64_t done = 0; done < count;) {
      const auto begun = h->call<BeginReply>(client, Begin{800, false});
      ASSERT_TRUE(begun.ok());
      Complete message;
      for (uint64_t i = 0; i < 800; ++i)
        message.outcomes.push_back({TransactionId(begun->first_id.value + i), i % 8 != 0});
      h->post(client, message);
      log.accept(h->core, log.end());
      ASSERT_TRUE(h->receive<CompleteReply>(client).ok());
      done += 700;
      commits += 700;
    }
  };
  fill(7'000);
  run(2 * kSecond, {node, second});
  EXPECT_TRUE(log.checkpoints.empty()) << "it is not long";
  fill(7'000);
  run(20 * kSecond, {node, second});
  ASSERT_EQ(log.checkpoints.size(), 1u);
  const CommitLogContents& needed = log.checkpoints[0];
  EXPECT_EQ(needed.end, commits);
  EXPECT_EQ(needed.truncated_up_to, TransactionId());
  std::set<TransactionId> named;
  for (const IdRange& range : needed.committed) {
    for (uint64_t id = range.first.value; id <= range.last.value; ++id) named.emplace(id);
  }
  EXPECT_EQ(named, (std::set<TransactionId>(log.all.begin(), log.all.end()))) << "those not flushed included";
  EXPECT_EQ(h->core.statistics().log_rewrites, 1u);
  EXPECT_EQ(h->core.statistics().log_ranges, needed.committed.size());
  log.finish(h->core);
  run(20 * kSecond, {node, second});
  EXPECT_EQ(log.checkpoints.size(), 1u) << "nothing was appended since";
  fill(9'000);
  log.finish(h->core);
  run(2 * kSecond, {node, second});
  ASSERT_EQ(log.checkpoints.size(), 2u);
  EXPECT_GT(log.checkpoints[1].truncated_up_to, TransactionId(kLogBlock))
      << "ids that are not needed any more are left out";
  EXPECT_EQ(log.checkpoints[1].committed.front().first.value / kLogBlock,
            (log.checkpoints[1].truncated_up_to.value + 1) / kLogBlock);
  EXPECT_EQ(log.checkpoints[1].end, commits);
  h->core.check_invariants();
}

TEST_F(CommitLogTest, StaysSmallWhenCommitsAreFlushedAndAcknowledged) {
  log.bytes_per_commit = 1'024;
  for (int i = 0; i < 100; ++i) {
    commit_many(1'000);
    run(kSecond, {node, second});
  }
  const Statistics statistics = h->core.statistics();
  EXPECT_EQ(statistics.commits, 100'000u);
  EXPECT_GT(statistics.log_truncated_up_to, 85'000u) << "ten seconds of commits and a block are kept";
  EXPECT_LE(statistics.log_rewrites, 100'000u * 1'024 / (8u << 20));
  EXPECT_GT(statistics.log_rewrites, 5u);
  for (const CommitLogContents& needed : log.checkpoints) EXPECT_LE(needed.committed.size(), 2u);
  h->core.check_invariants();  // nothing waits
}

}  // namespace
}  // namespace loam::commit
