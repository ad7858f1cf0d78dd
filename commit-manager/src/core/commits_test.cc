// Commits and the commit log: when a commit is visible, answered, published and forgotten [R1, commit order; R4,
// outcomes from the commit log; R11, commit log and restart of the commit manager; R13, atomic publication].
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/src/core/committed_ids.h"
#include "commit-manager/testing/commits_fixture.h"

namespace loam::commit {
namespace {

using wire::Begin;
using wire::BeginReply;
using wire::CloseSession;
using wire::Complete;
using wire::CompleteReply;
using wire::GetOutcomes;
using wire::GetOutcomesReply;
using wire::OpenSession;
using wire::OpenSessionReply;
using wire::Outcome;
using wire::Publish;
using wire::PublishReply;
using wire::RenewNode;

TEST_F(CommitsTest, ACommitIsNeitherSeenNorAnsweredBeforeTheLogAcceptsIt) {
  begin(2);
  const PeerId other = h->client();
  const uint64_t sequence = h->post(client, commit_of({2}));
  EXPECT_EQ(log.batches, (std::vector<std::vector<TransactionId>>{{TransactionId(2)}}));
  EXPECT_TRUE(no_messages(client));
  EXPECT_FALSE(now(other).snapshot.visible(Version(2)));
  EXPECT_EQ(outcome(2), Outcome::kPending);
  EXPECT_EQ(h->core.statistics().commits, 0u);
  h->core.check_invariants();
  accept(1);
  EXPECT_EQ(h->receive<CompleteReply>(client).sequence, sequence);
  EXPECT_TRUE(now(other).snapshot.visible(Version(2)));
  EXPECT_EQ(outcome(2), Outcome::kCommitted);
  EXPECT_EQ(h->core.statistics().commits, 1u);
  h->core.check_invariants();
}

TEST_F(CommitsTest, TheCommitsOfARoundAreOneBatch) {
  begin(5);
  const Buffer first = CoreHarness::encoded(commit_of({1, 3}), 1'001);
  const Buffer second = CoreHarness::encoded(Begin{1, false}, 1'002);
  const Buffer third = CoreHarness::encoded(Complete{{{TransactionId(2), false}, {TransactionId(5), true}}}, 1'003);
  const std::vector<Bytes> frame = {first, second, third};
  h->deliver_frame(client, frame);
  EXPECT_EQ(log.batches,
            (std::vector<std::vector<TransactionId>>{{TransactionId(1), TransactionId(3), TransactionId(5)}}));
  const auto begun = h->receive<BeginReply>(client);
  ASSERT_TRUE(begun.ok());
  EXPECT_EQ(begun->snapshot, Snapshot()) << "commits of the same round are not visible";
  EXPECT_TRUE(no_messages(client));
  h->run_for(kSecond / 10);
  EXPECT_EQ(log.batches.size(), 1u) << "appended once";
  accept(2);
  EXPECT_EQ(h->receive<CompleteReply>(client).sequence, 1'001u);
  EXPECT_TRUE(no_messages(client));
  accept(3);
  EXPECT_EQ(h->receive<CompleteReply>(client).sequence, 1'003u);
  h->core.check_invariants();
}

TEST_F(CommitsTest, AMessageIsAnsweredWhenAllOfItsCommitsAreAccepted) {
  begin(2);
  h->post(client, commit_of({2, 1}));
  accept(1);
  EXPECT_TRUE(no_messages(client));
  EXPECT_TRUE(now(h->client()).snapshot.visible(Version(2)));
  EXPECT_EQ(outcome(1), Outcome::kPending);
  accept(2);
  EXPECT_TRUE(h->receive<CompleteReply>(client).ok());
}

TEST_F(CommitsTest, ARepeatedCompleteIsAnsweredOnceAndThenFromTheWindow) {
  begin(1);
  const Buffer complete = CoreHarness::encoded(commit_of({1}), 1'000);
  h->deliver(client, complete);
  h->deliver(client, complete);
  h->core.on_peer_disconnected(client);
  client = h->connect();
  ASSERT_TRUE(h->call<OpenSessionReply>(client, OpenSession{"test", SessionId(1), 1}).ok());
  h->deliver(client, complete);
  EXPECT_TRUE(no_messages(client));
  accept(1);
  EXPECT_EQ(h->receive<CompleteReply>(client).sequence, 1'000u);
  EXPECT_TRUE(no_messages(client));
  h->deliver(client, complete);
  EXPECT_EQ(h->receive<CompleteReply>(client).sequence, 1'000u);
  EXPECT_EQ(log.batches.size(), 1u);
  EXPECT_EQ(h->core.statistics().commits, 1u);
}

TEST_F(CommitsTest, ASessionThatEndsWhileItsCommitWaitsLeavesTheCommit) {
  const PeerId dying = h->client();
  ASSERT_TRUE(h->call<BeginReply>(dying, Begin{3, false}).ok());
  h->post(dying, commit_of({2}));
  h->post(dying, CloseSession{});
  h->outbox.sent[dying].clear();
  EXPECT_EQ(outcome(1), Outcome::kAborted) << "decided at once";
  EXPECT_EQ(outcome(2), Outcome::kPending);
  EXPECT_EQ(outcome(3), Outcome::kAborted);
  h->core.check_invariants();
  ASSERT_TRUE(h->acknowledge_fence(node));
  const auto tasks = h->core.recovery_tasks(10);
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(*tasks[0].aborted, (std::vector{TransactionId(1), TransactionId(3)}));
  h->core.complete_recovery(tasks[0], h->now_ns);
  EXPECT_EQ(outcome(2), Outcome::kPending);
  EXPECT_EQ(h->call<CompleteReply>(dying, commit_of({1})).error.code(), StatusCode::kFenced);
  accept(1);
  EXPECT_TRUE(no_messages(dying)) << "an ended session gets no reply";
  EXPECT_EQ(outcome(2), Outcome::kCommitted);
  EXPECT_EQ(outcome(1), Outcome::kAborted);
  EXPECT_EQ(now(client).snapshot, Snapshot(Version(3)));
  h->core.check_invariants();
}

TEST_F(CommitsTest, SessionMayCloseWhileItsCommitWaits) {
  begin(1);
  h->post(client, commit_of({1}));
  ASSERT_TRUE(h->call<wire::CloseSessionReply>(client, CloseSession{}).ok());
  EXPECT_EQ(h->core.statistics().sessions_lost, 0u);
  accept(1);
  EXPECT_TRUE(no_messages(client));
  EXPECT_TRUE(now(h->client()).snapshot.visible(Version(1)));
  h->core.check_invariants();
}

TEST_F(CommitsTest, ACommitThatWaitsForTheLogDoesNotAgeItsSession) {
  CoreOptions options = options_of_test();
  options.max_transaction_age_ns = 2 * kLease;
  start(options);
  begin(1);
  h->post(client, commit_of({1}));
  run_alive(4 * kLease, {node});
  EXPECT_EQ(h->core.statistics().sessions, 1u) << "the disk of the commit log stalls, not the client";
  EXPECT_EQ(h->core.statistics().commits, 0u);
}

TEST_F(CommitsTest, BeginsSeeCommitsThatPublicationsDoNotCount) {
  begin(4);
  h->post(client, commit_of({1, 3}));
  accept(2);
  const BeginReply begun = now(h->client());
  EXPECT_TRUE(begun.snapshot.visible(Version(1)) && begun.snapshot.visible(Version(3)));
  EXPECT_EQ(begun.seen_by_all, Version(0)) << "a power cut may undo them";
  EXPECT_EQ(begun.durable, Version(0));
  auto publish = published();
  ASSERT_TRUE(publish.ok());
  EXPECT_FALSE(publish->publication.later.visible(Version(1)) || publish->publication.later.visible(Version(3)));
  EXPECT_EQ(publish->publication.seen_by_all(), Version(0));
  EXPECT_EQ(publish->log, 0u);
  EXPECT_TRUE(publish->publication.covers(begun.snapshot));
  EXPECT_EQ(h->call<wire::RenewNodeReply>(node, RenewNode{})->log, 0u);
  flush(1);
  publish = published();
  ASSERT_TRUE(publish.ok()) << "it is said without any other change";
  EXPECT_TRUE(publish->publication.later.visible(Version(1)));
  EXPECT_FALSE(publish->publication.later.visible(Version(3)));
  EXPECT_EQ(publish->log, 1u);
  flush(2);
  publish = published();
  EXPECT_TRUE(publish->publication.later.visible(Version(3)));
  EXPECT_EQ(publish->log, 2u);
  EXPECT_EQ(h->call<wire::RenewNodeReply>(node, RenewNode{})->log, 2u);
  EXPECT_EQ(h->core.statistics().log_flushed, 2u);
  EXPECT_EQ(now(h->client()).durable, Version(6)) << "2 and 4 are open, and do not hold it back";
  h->core.check_invariants();
}

TEST_F(CommitsTest, YoungAndOldSnapshotsAreCoveredThoughTheySeeUnflushedCommits) {
  begin(2);
  h->post(client, commit_of({1, 2}));
  accept(2);
  ASSERT_TRUE(h->receive<CompleteReply>(client).ok());
  const auto reader = h->call<BeginReply>(client, Begin{0, true});
  ASSERT_TRUE(reader.ok());
  begin(1);
  h->post(client, abort_of(3));
  h->outbox.sent[client].clear();
  auto publish = published();
  ASSERT_TRUE(publish.ok());
  EXPECT_TRUE(publish->publication.young_open);
  EXPECT_EQ(publish->publication.floor, Version(0)) << "not above what later snapshots see for good";
  EXPECT_TRUE(publish->publication.covers(reader->snapshot));
  publish = published(2 * CoreOptions().young_ns);
  ASSERT_TRUE(publish.ok());
  EXPECT_FALSE(publish->publication.young_open);
  ASSERT_EQ(publish->publication.old.size(), 1u) << "and it sees more than `later`";
  EXPECT_EQ(publish->publication.old[0].snapshot, Snapshot(Version(2)));
  EXPECT_FALSE(publish->publication.garbage(Version(1), Version(2)));
  flush(2);
  publish = published();
  EXPECT_TRUE(publish->publication.garbage(Version(1), Version(2)));
}

TEST_F(CommitsTest, AbortsNeedNoLog) {
  begin(2);
  ASSERT_TRUE(h->call<CompleteReply>(client, abort_of(1)).ok());
  EXPECT_TRUE(log.batches.empty());
  EXPECT_TRUE(now(h->client()).snapshot.visible(Version(1)));
  EXPECT_EQ(outcome(1), Outcome::kAborted);
  ASSERT_TRUE(h->call<CompleteReply>(client, Complete{}).ok()) << "nothing is answered at once too";
}

TEST_F(CommitsTest, RefusedCompletionChangesNothing) {
  begin(4);
  const PeerId other = h->client();
  ASSERT_TRUE(h->call<BeginReply>(other, Begin{1, false}).ok());
  h->post(client, commit_of({1}));
  accept(1);
  h->post(client, commit_of({2}));
  h->outbox.sent[client].clear();
  const Statistics before = h->core.statistics();
  const auto refused = [&](const Complete& message) {
    const auto answer = h->call<CompleteReply>(client, message);
    return answer.error.code() == StatusCode::kInvalidArgument && no_messages(client);
  };
  EXPECT_TRUE(refused(commit_of({3, 3})));
  EXPECT_TRUE(refused(Complete{{{TransactionId(3), true}, {TransactionId(3), false}}}));
  EXPECT_TRUE(refused(commit_of({3, 5}))) << "another session's";
  EXPECT_TRUE(refused(commit_of({3, 1}))) << "complete";
  EXPECT_TRUE(refused(Complete{{{TransactionId(3), true}, {TransactionId(1), false}}}));
  EXPECT_TRUE(refused(commit_of({3, 2}))) << "in the commit log";
  EXPECT_TRUE(refused(Complete{{{TransactionId(3), true}, {TransactionId(2), false}}}));
  EXPECT_TRUE(refused(commit_of({3, 6}))) << "never begun";
  EXPECT_TRUE(refused(commit_of({3, 0})));
  h->post(other, CloseSession{});
  EXPECT_TRUE(refused(commit_of({3, 5}))) << "of a session that has ended";
  h->core.check_invariants();
  EXPECT_EQ(log.batches.size(), 2u);
  EXPECT_EQ(h->core.statistics().open, before.open);
  EXPECT_EQ(h->core.statistics().commits, before.commits);
  EXPECT_EQ(h->core.statistics().aborts, before.aborts);
  EXPECT_EQ(outcome(3), Outcome::kPending);
}

TEST_F(CommitsTest, WithSyncAnOutcomeIsToldWhenItIsOnTheDisk) {
  begin(1);
  h->post(client, commit_of({1}));
  EXPECT_EQ(h->call<GetOutcomesReply>(h->client(), GetOutcomes{{TransactionId(1)}})->outcomes,
            std::vector{Outcome::kPending});
  flush_all();
  EXPECT_EQ(h->call<GetOutcomesReply>(h->client(), GetOutcomes{{TransactionId(1)}})->outcomes,
            std::vector{Outcome::kCommitted});
  EXPECT_TRUE(h->receive<CompleteReply>(client).ok());
  EXPECT_TRUE(published()->publication.later.visible(Version(1)));
  h->core.check_invariants();
}

TEST_F(CommitsTest, ALogThatIsBehindStopsBegins) {
  CoreOptions options = options_of_test();
  options.max_unflushed_commits = 2;
  start(options);
  begin(4);
  h->post(client, commit_of({1, 2}));
  EXPECT_EQ(h->call<BeginReply>(client, Begin{1, false}).error.code(), StatusCode::kOverloaded);
  EXPECT_TRUE(h->call<BeginReply>(client, Begin{0, true}).ok());
  h->post(client, commit_of({3}));
  EXPECT_EQ(log.all.size(), 3u) << "an open transaction may still be committed";
  accept(3);
  EXPECT_EQ(h->receive<CompleteReply>(client).error.code(), StatusCode::kOk);
  EXPECT_EQ(h->receive<CompleteReply>(client).error.code(), StatusCode::kOk);
  EXPECT_EQ(h->call<BeginReply>(client, Begin{1, false}).error.code(), StatusCode::kOverloaded);
  flush(2);
  EXPECT_TRUE(h->call<BeginReply>(client, Begin{1, false}).ok());
}

TEST_F(CommitsTest, AFailureOfTheLogStopsEverything) {
  begin(2);
  h->post(client, commit_of({1}));
  for (auto& [peer, queue] : h->outbox.sent) queue.clear();
  h->core.on_log_failed(Status(StatusCode::kNoSpace, "cannot write the commit log"));
  EXPECT_EQ(h->core.durable_status().code(), StatusCode::kNoSpace);
  h->core.on_log_failed(Status(StatusCode::kInternal, "again"));
  EXPECT_EQ(h->core.durable_status().code(), StatusCode::kNoSpace) << "the first one";
  accept(1);
  h->post(client, Begin{1, false});
  h->post(client, commit_of({2}));
  h->post(client, abort_of(2));
  h->run_for(2 * kLease);
  h->core.on_peer_disconnected(client);
  for (const auto& [peer, queue] : h->outbox.sent) EXPECT_TRUE(queue.empty());
  EXPECT_EQ(log.batches.size(), 1u);
  EXPECT_EQ(h->core.next_deadline_ns(), UINT64_MAX);
  EXPECT_EQ(h->core.open_recoverer_session(h->now_ns), SessionId(0));
}

TEST(Commits, NothingThatWaitsForTheDiskIsSaidAfterAFailureOfTheLog) {
  SlowStateStore disk;
  RecordingLog log;
  CoreHarness h(CoreHarness::open_at_once(), &disk, Bytes{}, &log);
  disk.finish_all(h.core);
  const PeerId node = h.connect();
  h.post(node, wire::RegisterNode{"tcp://a:1", "", 1});
  ASSERT_TRUE(disk.writing.has_value());
  h.core.on_log_failed(Status(StatusCode::kNoSpace, "cannot write the commit log"));
  ASSERT_TRUE(disk.finish(h.core));
  EXPECT_TRUE(h.outbox.sent[node].empty());
  EXPECT_FALSE(disk.writing.has_value());
}

TEST(Commits, WithoutALogAreAnsweredInTheSameRound) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const PeerId client = h.client();
  ASSERT_TRUE(h.call<BeginReply>(client, Begin{1, false}).ok());
  ASSERT_TRUE(h.call<CompleteReply>(client, commit_of({1})).ok());
  EXPECT_EQ(h.core.outcome(TransactionId(1)), Outcome::kCommitted);
  EXPECT_TRUE(h.call<BeginReply>(client, Begin{1, false})->snapshot.visible(Version(1)));
  h.run_for(kLease / 8);
  EXPECT_TRUE(h.newest<Publish>(node)->publication.later.visible(Version(1)));
  h.core.check_invariants();
}

TEST_F(CommitsTest, IgnoresAcknowledgementsOfOtherPublications) {
  CoreOptions options = options_of_test();
  options.outcome_keep_ns = kSecond;
  start(options);
  log.at_once = true;
  for (uint64_t id = 1; id <= CommittedIds::kBlockIds; ++id) {
    begin(1);
    ASSERT_TRUE(h->call<CompleteReply>(client, commit_of({id})).ok());
  }
  const auto publish = published();
  ASSERT_TRUE(publish.ok());
  const uint64_t number = publish->publication.number;
  const PublishReply wrong[] = {{0, number}, {2, number}, {1, number + 1'000}, {1, 0}, {0, 0}};
  for (const PublishReply& installed : wrong) h->deliver(node, CoreHarness::encoded(installed, number));
  run_alive(5 * kSecond, {node});
  EXPECT_FALSE(h->outbox.closed.contains(node));
  EXPECT_EQ(h->core.statistics().log_truncated_up_to, 0u);
  acknowledge(publish);
  run_alive(2 * kSecond, {node});
  EXPECT_EQ(h->core.statistics().log_truncated_up_to, CommittedIds::kBlockIds - 1);
  h->deliver(client, CoreHarness::encoded(PublishReply{1, number}, number));
  EXPECT_EQ(h->outbox.closed.at(client), StatusCode::kMalformed) << "a client says what nodes say";
}

// While no storage node has records, none needs the log. A later commit may fall among ids that could be truncated;
// if they were, its outcome would be answered as aborted.
TEST_F(CommitsTest, DoesNotTruncateOpenIds) {
  CoreOptions options = options_of_test();
  options.outcome_keep_ns = kSecond;
  log.at_once = true;
  h = std::make_unique<CoreHarness>(options, nullptr, Bytes{}, &log);
  client = h->client();
  begin(1);
  ASSERT_TRUE(h->call<CompleteReply>(client, commit_of({1})).ok());
  run_alive(5 * kSecond, {});
  EXPECT_EQ(h->core.statistics().log_truncated_up_to, 0u);
  begin(1);
  ASSERT_TRUE(h->call<CompleteReply>(client, commit_of({2})).ok());
  EXPECT_EQ(outcome(1), Outcome::kCommitted);
}

}  // namespace
}  // namespace loam::commit
