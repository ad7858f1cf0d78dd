// Sessions: leases, connections that come and go, and every way in which one ends.
#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"

namespace loam::commit {
namespace {

using wire::Begin;
using wire::BeginReply;
using wire::CloseSession;
using wire::CloseSessionReply;
using wire::Complete;
using wire::CompleteReply;
using wire::OpenSession;
using wire::OpenSessionReply;
using wire::RenewSession;
using wire::RenewSessionReply;

OpenSession resume(uint64_t session, uint64_t epoch = 1) { return {"test", SessionId(session), epoch}; }

TEST(Sessions, AnyMessageRenewsTheLease) {
  CoreHarness h;
  const PeerId peer = h.connect();
  const auto opened = h.call<OpenSessionReply>(peer, OpenSession{"a"});
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->lease_ns, kLease);
  for (int i = 0; i < 4; ++i) {
    h.run_for(kLease);
    h.post(peer, wire::ReleaseSnapshots{});
    h.run_for(kLease);
    ASSERT_TRUE(h.call<BeginReply>(peer, Begin{1, false}).ok());
    h.run_for(kLease);
    ASSERT_TRUE(h.call<RenewSessionReply>(peer, RenewSession{}).ok());
  }
  EXPECT_EQ(h.core.statistics().sessions, 1u);
  h.run_for(kLease + kLease / 8 + kLease / 16 + 1);
  EXPECT_EQ(h.core.statistics().sessions, 0u);
  EXPECT_EQ(h.core.statistics().sessions_expired, 1u);
  EXPECT_FALSE(h.outbox.closed.contains(peer)) << "it is told, when it asks";
  EXPECT_EQ(h.call<BeginReply>(peer, Begin{1, false}).error.code(), StatusCode::kFenced);
  EXPECT_EQ(h.call<RenewSessionReply>(peer, RenewSession{}).error.code(), StatusCode::kFenced);
  h.post(peer, wire::ReleaseSnapshots{});
  EXPECT_TRUE(h.outbox.sent[peer].empty()) << "one way";
  EXPECT_EQ(h.call<OpenSessionReply>(peer, OpenSession{"a"})->session, SessionId(2)) << "over the same connection";
  EXPECT_TRUE(h.call<BeginReply>(peer, Begin{1, false}).ok());
  h.core.check_invariants();
}

TEST(Sessions, LeasesExcludeTimeThatTheManagerDidNotRun) {
  CoreHarness h;
  const PeerId peer = h.client();
  const PeerId node = h.node("tcp://a:1");
  h.run_for(kLease / 4);
  h.now_ns += 100 * kLease;  // stopped and continued: messages sent meanwhile are read only after this
  h.core.on_timer(h.now_ns);
  EXPECT_EQ(h.core.statistics().sessions, 1u);
  EXPECT_EQ(h.core.statistics().nodes_live, 1u);
  h.run_for(kLease / 2);
  ASSERT_TRUE(h.call<RenewSessionReply>(peer, RenewSession{}).ok());
  EXPECT_EQ(h.core.statistics().nodes_live, 1u);
  h.run_for(kLease / 4);
  EXPECT_EQ(h.core.statistics().sessions, 1u);
  EXPECT_EQ(h.core.statistics().nodes_live, 0u) << "but time that it did run counts";
  EXPECT_TRUE(h.outbox.closed.contains(node));
}

TEST(Sessions, AStarvedManagerStillExpiresLeases) {
  CoreHarness h;
  h.client();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(h.core.statistics().sessions, i < 5 ? 1u : 0u) << "a quarter of a lease counts each time";
    h.now_ns += kLease / 2;
    h.core.on_timer(h.now_ns);
  }
}

TEST(Sessions, AResumedSessionGoesOn) {
  CoreHarness h;
  const PeerId first = h.client();
  const Buffer begin = CoreHarness::encoded(Begin{2, true}, 100);
  h.deliver(first, begin);
  const auto begun = h.receive<BeginReply>(first);
  ASSERT_TRUE(begun.ok());
  h.core.on_peer_disconnected(first);
  h.run_for(kLease / 2);
  const PeerId second = h.connect();
  const auto opened = h.call<OpenSessionReply>(second, resume(1));
  ASSERT_TRUE(opened.ok()) << opened.error.to_string();
  EXPECT_EQ(opened->session, SessionId(1));
  h.deliver(second, begin);
  const auto again = h.receive<BeginReply>(second);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->first_id, begun->first_id) << "answered from the window, executed once";
  EXPECT_EQ(h.core.statistics().begins, 2u);
  EXPECT_EQ(h.core.statistics().sessions_resumed, 1u);
  h.run_for(kLease);
  EXPECT_EQ(h.core.statistics().sessions, 1u) << "resuming renews";
  EXPECT_TRUE(h.call<CompleteReply>(second, Complete{{{begun->first_id, true}}}).ok());
  h.core.check_invariants();
}

TEST(Sessions, AReplyWithoutAConnectionIsSentOnTheNextOne) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const PeerId first = h.client();
  const wire::CreateTable table{"t", TableKind::kTransactional, test_schema()};
  h.deliver(first, CoreHarness::encoded(table, 100));
  h.core.on_peer_disconnected(first);
  const auto install = h.newest<wire::InstallTable>(node);
  h.deliver(node, CoreHarness::encoded(wire::InstallTableReply{}, install.sequence));
  const PeerId second = h.connect();
  ASSERT_TRUE(h.call<OpenSessionReply>(second, resume(1)).ok());
  h.deliver(second, CoreHarness::encoded(table, 100));
  const auto created = h.receive<wire::CreateTableReply>(second);
  ASSERT_TRUE(created.ok()) << created.error.to_string();
  EXPECT_FALSE(created->existed);
}

TEST(Sessions, TheNewestConnectionOwnsTheSession) {
  CoreHarness h;
  const PeerId first = h.client();
  const PeerId second = h.connect();
  ASSERT_TRUE(h.call<OpenSessionReply>(second, resume(1)).ok());
  EXPECT_EQ(h.outbox.closed.at(first), StatusCode::kUnavailable);
  EXPECT_TRUE(h.call<BeginReply>(second, Begin{1, false}).ok());
  ASSERT_TRUE(h.call<OpenSessionReply>(second, resume(1)).ok()) << "resumed once more where it is";
  EXPECT_FALSE(h.outbox.closed.contains(second));
  h.core.check_invariants();
}

TEST(Sessions, ALateResumeIsFenced) {
  CoreHarness h;
  const PeerId first = h.client();
  h.core.on_peer_disconnected(first);
  EXPECT_EQ(h.call<OpenSessionReply>(h.connect(), resume(1, 2)).error.code(), StatusCode::kFenced) << "another epoch";
  EXPECT_EQ(h.call<OpenSessionReply>(h.connect(), resume(7)).error.code(), StatusCode::kFenced) << "never opened";
  h.run_for(2 * kLease);
  const PeerId second = h.connect();
  EXPECT_EQ(h.call<OpenSessionReply>(second, resume(1)).error.code(), StatusCode::kFenced);
  EXPECT_EQ(h.call<BeginReply>(second, Begin{1, false}).error.code(), StatusCode::kFenced) << "sent behind it";
  EXPECT_FALSE(h.outbox.closed.contains(second));
  EXPECT_FALSE(h.outbox.closed.contains(second));
  EXPECT_EQ(h.call<OpenSessionReply>(second, OpenSession{"anew"})->session, SessionId(2));
}

TEST(Sessions, RenewalsNameTheSnapshotsStillHeld) {
  CoreHarness h;
  const PeerId a = h.client();
  const PeerId b = h.client();
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 4; ++i) numbers.push_back(h.call<BeginReply>(a, Begin{0, true})->snapshot_number);
  ASSERT_TRUE(h.call<BeginReply>(b, Begin{0, true}).ok());
  ASSERT_TRUE(h.call<RenewSessionReply>(a, RenewSession{numbers[2], {numbers[0], numbers[2]}}).ok());
  EXPECT_EQ(h.core.statistics().read_only_snapshots, 4u)
      << "one is released; the one that its client has not received yet, and another client's, stay";
  ASSERT_TRUE(h.call<RenewSessionReply>(a, RenewSession{numbers[3], {numbers[0], numbers[2], numbers[3]}}).ok());
  EXPECT_EQ(h.core.statistics().read_only_snapshots, 4u);
  ASSERT_TRUE(h.call<RenewSessionReply>(a, RenewSession{numbers[3], {}}).ok());
  EXPECT_EQ(h.core.statistics().read_only_snapshots, 1u);
  h.core.check_invariants();
  h.post(a, RenewSession{numbers[3], {2, 2}});
  EXPECT_EQ(h.outbox.closed.at(a), StatusCode::kMalformed);
}

TEST(Sessions, ClosingWithOpenTransactionsAbortsThem) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const PeerId peer = h.client();
  ASSERT_TRUE(h.call<BeginReply>(peer, Begin{2, true}).ok());
  ASSERT_TRUE(h.call<CompleteReply>(peer, Complete{{{TransactionId(1), true}}}).ok());
  EXPECT_TRUE(h.call<CloseSessionReply>(peer, CloseSession{}).ok());
  ASSERT_TRUE(h.acknowledge_fence(node));
  const Statistics statistics = h.core.statistics();
  EXPECT_EQ(statistics.sessions, 0u);
  EXPECT_EQ(statistics.sessions_lost, 1u);
  EXPECT_EQ(statistics.orphaned_transactions, 1u);
  EXPECT_EQ(statistics.read_only_snapshots, 0u);
  EXPECT_EQ(h.call<BeginReply>(peer, Begin{1, false}).error.code(), StatusCode::kFenced);
  h.core.check_invariants();
}

TEST(Sessions, ATransactionThatIsTooOldEndsItsWholeSession) {
  CoreOptions options = CoreHarness::open_at_once();
  options.max_transaction_age_ns = 10 * kLease;
  CoreHarness h(options);
  h.node("tcp://a:1");
  const PeerId old = h.client("holds on");
  const PeerId young = h.client("goes on");
  ASSERT_TRUE(h.call<BeginReply>(old, Begin{1, false}).ok());
  ASSERT_TRUE(h.call<BeginReply>(old, Begin{1, false}).ok());
  uint64_t last = 0;
  const uint64_t began = h.now_ns;
  while (h.core.statistics().sessions == 2) {
    ASSERT_LT(h.now_ns - began, 11 * kLease) << "noticed within a sixteenth";
    if (last != 0) {
      ASSERT_TRUE(h.call<CompleteReply>(young, Complete{{{TransactionId(last), true}}}).ok());
    }
    last = h.call<BeginReply>(young, Begin{1, false})->first_id.value;
    ASSERT_TRUE(h.call<RenewSessionReply>(old, RenewSession{}).ok());
    h.run_for(kLease / 2);
  }
  EXPECT_GE(h.now_ns - began, 10 * kLease);
  EXPECT_EQ(h.core.statistics().sessions_over_max_age, 1u);
  EXPECT_EQ(h.core.orphans().size(), 2u);
  EXPECT_EQ(h.call<CompleteReply>(old, Complete{{{TransactionId(1), true}}}).error.code(), StatusCode::kFenced);
  EXPECT_TRUE(h.call<CompleteReply>(young, Complete{{{TransactionId(last), true}}}).ok());
}

TEST(Sessions, ATransactionOnAnOldSnapshotIsNotOld) {
  CoreOptions options = CoreHarness::open_at_once();
  options.max_transaction_age_ns = 4 * kLease;
  CoreHarness h(options);
  const PeerId peer = h.client();
  ASSERT_TRUE(h.call<BeginReply>(peer, Begin{0, true}).ok());  // keeps the snapshot that the next begins share
  for (int i = 0; i < 12; ++i) {
    h.run_for(kLease / 2);
    ASSERT_TRUE(h.call<RenewSessionReply>(peer, RenewSession{1, {1}}).ok());
  }
  ASSERT_TRUE(h.call<BeginReply>(peer, Begin{1, false}).ok());
  for (int i = 0; i < 6; ++i) {
    h.run_for(kLease / 2);
    ASSERT_TRUE(h.call<RenewSessionReply>(peer, RenewSession{1, {1}}).ok());
  }
  EXPECT_EQ(h.core.statistics().sessions, 1u);
}

TEST(Sessions, AreListed) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const PeerId a = h.client("first");
  h.client("second");
  ASSERT_TRUE(h.call<BeginReply>(a, Begin{3, false}).ok());
  ASSERT_TRUE(h.call<CloseSessionReply>(a, CloseSession{}).ok());
  h.core.open_recoverer_session(h.now_ns);
  auto sessions = h.core.sessions();
  ASSERT_EQ(sessions.size(), 3u);
  EXPECT_EQ(sessions[0].name, "first");
  EXPECT_EQ(sessions[0].state, SessionStatus::State::kFencing);
  EXPECT_EQ(sessions[0].open, 3u);
  EXPECT_EQ(sessions[0].end, "given up by its client");
  EXPECT_EQ(sessions[1].state, SessionStatus::State::kOpen);
  EXPECT_TRUE(sessions[1].connected);
  EXPECT_TRUE(sessions[2].recoverer);
  ASSERT_TRUE(h.acknowledge_fence(node));
  EXPECT_EQ(h.core.sessions()[0].state, SessionStatus::State::kRecovering);
  EXPECT_EQ(to_string(h.core.sessions()[0].state), "recovering");
}

TEST(Sessions, RefusalsCarryARetryDelay) {
  CoreOptions options = CoreHarness::open_at_once();
  options.max_open_per_session = 1;
  options.max_sessions = 1;
  CoreHarness h(options);
  const PeerId peer = h.client();
  ASSERT_TRUE(h.call<BeginReply>(peer, Begin{1, false}).ok());
  const auto retry = [&](PeerId at) {
    const Buffer bytes = h.outbox.sent[at].back();
    ByteReader reader(bytes);
    wire::Envelope envelope;
    wire::Error error;
    EXPECT_TRUE(wire::decode_envelope(reader, envelope).ok() && wire::decode_body(reader, error).ok());
    EXPECT_EQ(error.status.code(), StatusCode::kOverloaded);
    return error.retry_after_ns;
  };
  h.post(peer, Begin{1, false});
  EXPECT_EQ(retry(peer), kRetryOverloadedNs);
  const PeerId other = h.connect();
  h.post(other, OpenSession{"one too many"});
  EXPECT_EQ(retry(other), kRetryOverloadedNs);
}

}  // namespace
}  // namespace loam::commit
