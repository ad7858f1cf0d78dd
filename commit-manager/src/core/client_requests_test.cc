#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"
#include "common/wire/reply_window.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using wire::Begin;
using wire::BeginReply;
using wire::Complete;
using wire::CompleteReply;
using wire::OpenSession;
using wire::OpenSessionReply;

Complete outcome(TransactionId id, bool committed) { return Complete{{{id, committed}}}; }

TEST(ClientRequests, OpensSessionsWithRisingNumbers) {
  CoreOptions options = CoreHarness::open_at_once();
  options.first_session = SessionId(50);
  options.epoch = 3;
  CoreHarness h(options);
  h.core.set_admin_address("127.0.0.1:7410");
  const PeerId a = h.connect();
  const PeerId b = h.connect();
  const auto first = h.call<OpenSessionReply>(a, OpenSession{"a"});
  ASSERT_TRUE(first.ok()) << first.error.to_string();
  EXPECT_EQ(first->session, SessionId(50));
  EXPECT_EQ(first->manager_epoch, 3u);
  EXPECT_EQ(first->admin_address, "127.0.0.1:7410");
  ASSERT_EQ(first->catalog.tables.size(), 1u) << "the system table exists from the start";
  EXPECT_EQ(first->catalog.tables[0].id, wire::kCounterTableId);
  EXPECT_EQ(first->catalog.tables[0].schema, wire::counter_table_schema());
  EXPECT_EQ(first->catalog.shards.owners.size(), wire::kVirtualShards);
  EXPECT_EQ(h.call<OpenSessionReply>(b, OpenSession{"b"})->session, SessionId(51));
  h.core.check_invariants();
}

TEST(ClientRequests, RepeatedOpenGivesTheSameSession) {
  CoreHarness h;
  const PeerId peer = h.connect();
  const Buffer open = CoreHarness::encoded(OpenSession{"x"}, 9);
  h.deliver(peer, open);
  h.deliver(peer, open);
  EXPECT_EQ(h.receive<OpenSessionReply>(peer)->session, SessionId(1));
  EXPECT_EQ(h.receive<OpenSessionReply>(peer)->session, SessionId(1));
  h.deliver(peer, CoreHarness::encoded(OpenSession{"x"}, 10));
  EXPECT_EQ(h.outbox.closed.at(peer), StatusCode::kMalformed) << "a second session on one connection";
}

TEST(ClientRequests, LimitsSessionsAndNames) {
  CoreOptions options = CoreHarness::open_at_once();
  options.max_sessions = 2;
  CoreHarness h(options);
  const PeerId first = h.client();
  h.client();
  const PeerId third = h.connect();
  EXPECT_EQ(h.call<OpenSessionReply>(third, OpenSession{"c"}).error.code(), StatusCode::kOverloaded);
  EXPECT_FALSE(h.outbox.closed.contains(third)) << "it may try again";
  EXPECT_TRUE(h.call<wire::CloseSessionReply>(first, wire::CloseSession{}).ok());
  EXPECT_TRUE(h.call<OpenSessionReply>(third, OpenSession{std::string(kMaxClientNameBytes, 'x')}).ok());
  EXPECT_TRUE(h.call<wire::CloseSessionReply>(third, wire::CloseSession{}).ok());
  const PeerId fourth = h.connect();
  EXPECT_EQ(h.call<OpenSessionReply>(fourth, OpenSession{std::string(kMaxClientNameBytes + 1, 'x')}).error.code(),
            StatusCode::kInvalidArgument);
}

TEST(ClientRequests, RequestsNeedASession) {
  CoreHarness h;
  const PeerId peer = h.connect();
  EXPECT_EQ(h.call<BeginReply>(peer, Begin{1, false}).error.code(), StatusCode::kMalformed);
  EXPECT_TRUE(h.outbox.closed.contains(peer));
}

TEST(ClientRequests, BeginsAreOrderedAfterAcknowledgedCommits) {
  CoreHarness h;
  const PeerId a = h.client();
  const PeerId b = h.client();
  const auto first = h.call<BeginReply>(a, Begin{2, false});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->first_id, TransactionId(1));
  const auto before = h.call<BeginReply>(b, Begin{1, false});
  ASSERT_TRUE(h.call<CompleteReply>(a, outcome(TransactionId(2), true)).ok());
  const auto after = h.call<BeginReply>(b, Begin{1, true});
  EXPECT_FALSE(before->snapshot.visible(Version(2)));
  EXPECT_TRUE(after->snapshot.visible(Version(2))) << "strong: acknowledged before, hence seen";
  EXPECT_FALSE(after->snapshot.visible(Version(1)));
  EXPECT_FALSE(after->snapshot.visible(Version(3)));
  EXPECT_EQ(after->first_id, TransactionId(4));
  EXPECT_NE(after->snapshot_number, 0u);
  EXPECT_EQ(after->catalog_version, h.core.catalog().version);
}

TEST(ClientRequests, OnlyTheOwnerCompletes) {
  CoreHarness h;
  const PeerId a = h.client();
  const PeerId b = h.client();
  ASSERT_TRUE(h.call<BeginReply>(a, Begin{1, false}).ok());
  EXPECT_EQ(h.call<CompleteReply>(b, outcome(TransactionId(1), true)).error.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(h.core.statistics().open, 1u);
  EXPECT_TRUE(h.call<CompleteReply>(a, outcome(TransactionId(1), true)).ok());
  EXPECT_EQ(h.core.statistics().commits, 1u);
}

TEST(ClientRequests, RepeatedRequestsAreExecutedOnce) {
  CoreHarness h;
  const PeerId peer = h.client();
  const Buffer begin = CoreHarness::encoded(Begin{3, true}, 100);
  h.deliver(peer, begin);
  const Buffer first = h.outbox.sent[peer].front();
  h.outbox.sent[peer].clear();
  ASSERT_TRUE(h.call<CompleteReply>(peer, outcome(TransactionId(1), true)).ok());
  h.deliver(peer, begin);
  ASSERT_EQ(h.outbox.sent[peer].size(), 1u);
  EXPECT_EQ(h.outbox.sent[peer].front(), first) << "the same reply, byte for byte (R3)";
  const Statistics statistics = h.core.statistics();
  EXPECT_EQ(statistics.begins, 3u);
  EXPECT_EQ(statistics.read_only_snapshots, 1u);
  EXPECT_EQ(statistics.repeated, 1u);
}

TEST(ClientRequests, RefusalsAreRepeatedToo) {
  CoreOptions options = CoreHarness::open_at_once();
  options.max_open_per_session = 1;
  CoreHarness h(options);
  const PeerId peer = h.client();
  ASSERT_TRUE(h.call<BeginReply>(peer, Begin{1, false}).ok());
  const Buffer begin = CoreHarness::encoded(Begin{1, false}, 100);
  h.deliver(peer, begin);
  EXPECT_EQ(h.receive<BeginReply>(peer).error.code(), StatusCode::kOverloaded);
  ASSERT_TRUE(h.call<CompleteReply>(peer, outcome(TransactionId(1), true)).ok());
  h.deliver(peer, begin);
  EXPECT_EQ(h.receive<BeginReply>(peer).error.code(), StatusCode::kOverloaded);
  EXPECT_TRUE(h.call<BeginReply>(peer, Begin{1, false}).ok());
}

TEST(ClientRequests, RepetitionBeyondTheWindowEndsTheSession) {
  CoreHarness h;
  h.node("tcp://a:1");  // where its transactions may have written
  const PeerId peer = h.client();
  const Buffer begin = CoreHarness::encoded(Begin{1, false}, 100);
  h.deliver(peer, begin);
  h.deliver(peer, CoreHarness::encoded(Begin{1, false}, 100 + wire::kManagerReplyWindow.requests));
  h.outbox.sent[peer].clear();
  h.deliver(peer, begin);
  EXPECT_EQ(h.receive<BeginReply>(peer).error.code(), StatusCode::kUnknownOutcome);
  EXPECT_TRUE(h.outbox.closed.contains(peer));
  EXPECT_EQ(h.core.statistics().sessions, 0u);
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 2u);
}

TEST(ClientRequests, AnExpiredSessionLeavesItsTransactionsOpen) {
  CoreHarness h;
  h.node("tcp://a:1");
  const PeerId a = h.client("loader at host3");
  const PeerId b = h.client();
  ASSERT_TRUE(h.call<BeginReply>(a, Begin{2, true}).ok());
  ASSERT_TRUE(h.call<CompleteReply>(a, outcome(TransactionId(1), false)).ok());
  h.core.on_peer_disconnected(a);
  h.core.on_peer_disconnected(a);
  h.core.check_invariants();
  EXPECT_EQ(h.core.statistics().sessions, 2u) << "a session outlives its connection";
  const uint64_t lease = CoreHarness::kLeaseNs;
  h.run_for(lease);
  EXPECT_EQ(h.core.statistics().sessions, 2u) << "and a moment more";
  h.post(b, wire::RenewSession{});
  h.run_for(lease / 4);
  h.outbox.sent[b].clear();
  h.core.check_invariants();
  const Statistics statistics = h.core.statistics();
  EXPECT_EQ(statistics.sessions, 1u);
  EXPECT_EQ(statistics.sessions_lost, 1u);
  EXPECT_EQ(statistics.read_only_snapshots, 0u) << "read-only snapshots are released";
  EXPECT_EQ(statistics.open, 1u);
  EXPECT_EQ(statistics.orphaned_transactions, 1u);
  ASSERT_EQ(h.core.orphans().size(), 1u);
  EXPECT_EQ(h.core.orphans()[0].id, TransactionId(2));
  EXPECT_EQ(h.core.orphans()[0].session, SessionId(1));
  EXPECT_FALSE(h.call<BeginReply>(b, Begin{1, false})->snapshot.visible(Version(2)));
  ASSERT_FALSE(h.outbox.log_events.empty());
  EXPECT_TRUE(std::ranges::any_of(
      h.outbox.log_events, [](const std::string& line) { return line.find("loader at host3") != std::string::npos; }));
}

TEST(ClientRequests, ClosesASessionWithoutOpenTransactions) {
  CoreHarness h;
  const PeerId peer = h.client();
  ASSERT_TRUE(h.call<BeginReply>(peer, Begin{1, true}).ok());
  ASSERT_TRUE(h.call<CompleteReply>(peer, outcome(TransactionId(1), true)).ok());
  EXPECT_TRUE(h.call<wire::CloseSessionReply>(peer, wire::CloseSession{}).ok());
  h.core.check_invariants();
  const Statistics statistics = h.core.statistics();
  EXPECT_EQ(statistics.sessions, 0u);
  EXPECT_EQ(statistics.sessions_lost, 0u);
  EXPECT_EQ(statistics.open_snapshots, 0u);
  EXPECT_TRUE(h.call<OpenSessionReply>(peer, OpenSession{"again"}).ok());
}

TEST(ClientRequests, APeerThatDoesNotReadIsClosed) {
  CoreHarness h;
  const PeerId peer = h.client();
  h.outbox.stuck.insert(peer);
  h.post(peer, Begin{1, false});
  EXPECT_EQ(h.outbox.closed.at(peer), StatusCode::kOverloaded);
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 0u);
  const PeerId again = h.connect();
  ASSERT_TRUE(h.call<OpenSessionReply>(again, OpenSession{"test", SessionId(1), 1}).ok()) << "its session goes on";
  h.core.check_invariants();
}

}  // namespace
}  // namespace loam::commit
