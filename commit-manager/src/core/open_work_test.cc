// The open transactions that operators see, and the end of a session by an operator.
#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"

namespace loam::commit {
namespace {

using wire::Begin;
using wire::BeginReply;
using wire::Complete;
using wire::CompleteReply;

using Kind = TransactionStatus::Kind;
using State = TransactionStatus::State;

/// Begins and commits one transaction, so that later snapshots see more than earlier ones.
void commit_one(CoreHarness& h, PeerId peer) {
  const TransactionId id = h.call<BeginReply>(peer, Begin{1, false})->first_id;
  ASSERT_TRUE(h.call<CompleteReply>(peer, Complete{{{id, true}}}).ok());
}

TEST(OpenWork, ListsTheOldestSnapshotsFirst) {
  CoreHarness h;
  h.node("tcp://a:1");
  const PeerId reader = h.client("reader");
  const PeerId writer = h.client("writer");
  EXPECT_TRUE(h.core.oldest_transactions(10).empty());
  ASSERT_TRUE(h.call<BeginReply>(reader, Begin{0, true}).ok());
  commit_one(h, writer);
  h.run_for(kLease / 4);
  ASSERT_TRUE(h.call<BeginReply>(writer, Begin{0, false, true, {}}).ok());
  commit_one(h, writer);
  h.run_for(kLease / 4);
  const TransactionId id = h.call<BeginReply>(writer, Begin{1, false})->first_id;

  const std::vector<TransactionStatus> all = h.core.oldest_transactions(10);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].client, "reader");
  EXPECT_EQ(all[0].kind, Kind::kReadOnly);
  EXPECT_EQ(all[0].id, TransactionId());
  EXPECT_EQ(all[0].peer, reader);
  EXPECT_EQ(all[0].snapshot.value + all[0].newer_ids, all[1].snapshot.value + all[1].newer_ids);
  EXPECT_LT(all[0].snapshot, all[1].snapshot);
  EXPECT_EQ(all[0].newer_ids, 3u);
  EXPECT_GE(all[0].snapshot_age_ns, kLease / 2);
  EXPECT_EQ(all[1].client, "writer");
  EXPECT_EQ(all[1].kind, Kind::kUpgradable);
  EXPECT_EQ(all[1].newer_ids, 2u);
  EXPECT_EQ(all[2].kind, Kind::kReadWrite);
  EXPECT_EQ(all[2].id, id);
  EXPECT_EQ(all[2].state, State::kOpen);
  EXPECT_EQ(all[2].newer_ids, 1u) << "its own id";
  EXPECT_LT(all[2].snapshot_age_ns, all[1].snapshot_age_ns);
  EXPECT_EQ(h.core.statistics().oldest_snapshot_age_ns, all[0].snapshot_age_ns);
  EXPECT_EQ(h.core.statistics().oldest_writer_age_ns, all[1].snapshot_age_ns);

  const std::vector<TransactionStatus> first = h.core.oldest_transactions(1);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].client, "reader");
  EXPECT_TRUE(h.core.oldest_transactions(0).empty());
}

TEST(OpenWork, OneSnapshotOfManyTransactionsIsListedUpToTheLimit) {
  CoreHarness h;
  h.node("tcp://a:1");
  const PeerId peer = h.client();
  ASSERT_TRUE(h.call<BeginReply>(peer, Begin{1'000, false}).ok());
  const std::vector<TransactionStatus> some = h.core.oldest_transactions(7);
  ASSERT_EQ(some.size(), 7u);
  for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(some[i].id, TransactionId(i + 1)) << "the lowest ids first";
}

TEST(OpenWork, AnOperatorEndsASession) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const PeerId ended = h.client("ended");
  const PeerId other = h.client("other");
  const TransactionId id = h.call<BeginReply>(ended, Begin{1, true})->first_id;
  ASSERT_TRUE(h.call<BeginReply>(other, Begin{1, false}).ok());
  const SessionId session = h.core.sessions().front().id;

  ASSERT_TRUE(h.core.end_session(session).ok());
  EXPECT_EQ(h.call<CompleteReply>(ended, Complete{{{id, true}}}).error.code(), StatusCode::kFenced);
  EXPECT_EQ(h.core.statistics().sessions, 1u);
  EXPECT_EQ(h.core.statistics().sessions_lost, 1u);
  EXPECT_EQ(h.core.sessions().front().end, "ended by an operator");
  const std::vector<TransactionStatus> left = h.core.oldest_transactions(10);
  ASSERT_EQ(left.size(), 3u);
  for (const TransactionStatus& one : left) {
    EXPECT_EQ(one.state, one.client == "ended" ? State::kOrphaned : State::kOpen) << one.client;
  }
  ASSERT_TRUE(h.acknowledge_fence(node));
  EXPECT_EQ(h.core.oldest_transactions(10).size(), 2u)
      << "its snapshot is released; its transaction is recovered later";
  EXPECT_EQ(h.core.end_session(session).code(), StatusCode::kNotFound) << "it has ended already";
  EXPECT_EQ(h.core.end_session(SessionId(99)).code(), StatusCode::kNotFound);
  h.core.check_invariants();
}

TEST(OpenWork, TheRecoverersSessionCannotBeEnded) {
  CoreHarness h;
  h.node("tcp://a:1");
  const SessionId recoverer = h.core.open_recoverer_session(h.now_ns);
  ASSERT_NE(recoverer, SessionId());
  const Status status = h.core.end_session(recoverer);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("belongs to the commit manager"), std::string_view::npos) << status.to_string();
  h.core.check_invariants();
}

}  // namespace
}  // namespace loam::commit
