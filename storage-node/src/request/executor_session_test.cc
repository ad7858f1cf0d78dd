// The executor with sessions and the lease: repetitions, successive connections, fences, and refusals (R3, idempotent
// requests; R7, fence barrier; R9, leases; R10, incarnations).
#include "common/base/pause_point.h"
#include "storage-node/src/request/executor.h"
#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

class ExecutorSessionTest : public NodeFixture {
 protected:
  ExecutorSessionTest() {
    enter_service();
    attach(peer, 5);
  }
  static wire::RecordId counter(uint64_t key) { return {kCounters, Key(key)}; }
  /// Inserts a record. A second execution would be a conflict.
  wire::PlainWrite insert(uint64_t key) { return {{{wire::WriteKind::kInsert, {}, counter(key), {}, bytes_}}}; }
  void insert_as(RecordingPeer& who, uint64_t sequence, uint64_t key) { run(who, std::pair(sequence, insert(key))); }
  static StatusCode inserted(const RecordingPeer& who, uint64_t sequence) {
    return who.answer<wire::PlainWriteReply>(sequence).results.at(0).code;
  }
  uint64_t repeated() const { return executor->counters().repeated.read(); }
  bool there(uint64_t key) {
    RecordingPeer reader(99);
    attach(reader, 99);
    run(reader, std::pair(uint64_t{1}, wire::PlainRead{{counter(key)}}));
    return reader.answer<wire::PlainReadReply>(1).results.at(0).code == StatusCode::kOk;
  }

  const Buffer bytes_ = row(1);
  RecordingPeer peer{1};
};

TEST_F(ExecutorSessionTest, RepeatedChangeGetsTheFirstReply) {
  insert_as(peer, 7, 1);
  const auto first = peer.sent;
  peer.sent.clear();
  insert_as(peer, 7, 1);
  EXPECT_EQ(peer.sent, first);
  EXPECT_EQ(inserted(peer, 7), StatusCode::kOk);
  EXPECT_EQ(repeated(), 1u);
}

TEST_F(ExecutorSessionTest, TwoCopiesInOneBatchAreExecutedOnceAndAnsweredOnce) {
  run(peer, std::pair(uint64_t{7}, insert(1)), std::pair(uint64_t{7}, insert(1)));
  EXPECT_EQ(peer.sent.size(), 1u);
  EXPECT_EQ(inserted(peer, 7), StatusCode::kOk);
}

TEST_F(ExecutorSessionTest, RefusalIsKeptInTheReplyWindow) {
  wire::PlainWrite many = insert(1);
  many.operations.assign(wire::kMaxOperations + 1, many.operations[0]);
  run(peer, std::pair(uint64_t{7}, many));
  EXPECT_TRUE(peer.answer<wire::Error>(7).status == StatusCode::kInvalidArgument);
  peer.sent.clear();
  run(peer, std::pair(uint64_t{7}, many));
  EXPECT_TRUE(peer.answer<wire::Error>(7).status == StatusCode::kInvalidArgument) << "it waits for a reply";
}

TEST_F(ExecutorSessionTest, NextConnectionContinuesTheSession) {
  insert_as(peer, 7, 1);
  RecordingPeer next(2);
  attach(next, 5);
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0], std::pair(PeerId{1}, StatusCode::kUnavailable));
  insert_as(next, 7, 1);
  EXPECT_EQ(inserted(next, 7), StatusCode::kOk);
  peer.sent.clear();
  insert_as(peer, 8, 2);  // sent before the session attached over another connection
  EXPECT_TRUE(peer.sent.empty());
  EXPECT_TRUE(peer.closed == StatusCode::kUnavailable);
  EXPECT_FALSE(there(2));
}

TEST_F(ExecutorSessionTest, RepetitionBeyondTheWindowEndsTheSession) {
  insert_as(peer, 1, 1);
  insert_as(peer, 1 + wire::kNodeReplyWindow.requests, 2);
  EXPECT_TRUE(peer.closed.ok());
  peer.sent.clear();
  run(peer, std::pair(uint64_t{1}, insert(1)), std::pair(uint64_t{9}, insert(9)));
  EXPECT_TRUE(peer.answer<wire::Error>(1).status == StatusCode::kUnknownOutcome);
  EXPECT_TRUE(peer.closed == StatusCode::kUnknownOutcome);
  EXPECT_FALSE(there(9));
}

TEST_F(ExecutorSessionTest, AConnectionSpeaksForOneSession) {
  run(peer, std::pair(uint64_t{1}, wire::Attach{SessionId(5), 1, kIncarnation}));
  EXPECT_EQ(peer.answer<wire::AttachReply>(1).node, NodeId(1)) << "the same came twice";
  EXPECT_TRUE(peer.closed.ok());
  run(peer, std::pair(uint64_t{2}, wire::Attach{SessionId(6), 1, kIncarnation}));
  EXPECT_TRUE(peer.closed == StatusCode::kMalformed);
}

TEST_F(ExecutorSessionTest, FencedSessionsAreRefusedAndOthersAreNot) {
  RecordingPeer alive(2);
  attach(alive, 4);
  registry->fence(*epoch_thread, {SessionId(5), {SessionId(4)}});
  run(peer, std::pair(uint64_t{7}, insert(1)), std::pair(uint64_t{8}, wire::PlainRead{{counter(1)}}));
  EXPECT_TRUE(peer.answer<wire::Error>(7).status == StatusCode::kFenced);
  EXPECT_TRUE(peer.answer<wire::Error>(8).status == StatusCode::kFenced);
  EXPECT_TRUE(peer.closed == StatusCode::kFenced);
  EXPECT_FALSE(there(1));
  EXPECT_EQ(executor->counters().fenced.read(), 2u);
  insert_as(alive, 7, 1);
  EXPECT_EQ(inserted(alive, 7), StatusCode::kOk);

  RecordingPeer again(3);
  run(again, std::pair(uint64_t{1}, wire::Attach{SessionId(5), 1, kIncarnation}));
  EXPECT_TRUE(again.answer<wire::Error>(1).status == StatusCode::kFenced);
  EXPECT_TRUE(again.closed == StatusCode::kFenced);
  EXPECT_FALSE(again.attached());
}

// A client sends requests right behind kAttach. The connection stays open, so that the client learns of the refusal.
TEST_F(ExecutorSessionTest, RequestsBehindARefusedAttachAreDropped) {
  RecordingPeer early(2);
  run(early, std::pair(uint64_t{1}, wire::Attach{SessionId(6), 1, Incarnation(kIncarnation.value + 1)}),
      std::pair(uint64_t{2}, insert(1)));
  EXPECT_FALSE(early.answer<wire::Error>(1).status.ok());
  EXPECT_EQ(early.sent.size(), 1u);
  EXPECT_TRUE(early.closed.ok());
  EXPECT_FALSE(there(1));
  run(early, std::pair(uint64_t{3}, insert(1)));
  EXPECT_EQ(early.sent.size(), 1u);
  // It may attach after all.
  run(early, std::pair(uint64_t{4}, wire::Attach{SessionId(6), 1, kIncarnation}), std::pair(uint64_t{5}, insert(1)));
  EXPECT_EQ(inserted(early, 5), StatusCode::kOk);
}

#ifdef LOAM_ASSERTIONS
// Between the entry in the table and the session's lock, a newer connection attaches and ends again. The session has no
// reply window, so the table forgets it. A write of the overtaken connection would find no repetition and leave an
// intent that recovery does not see (R3, R5).
TEST_F(ExecutorSessionTest, AnAttachThatANewerConnectionOvertakesExecutesNothing) {
  RecordingPeer overtaken(2);
  {
    const auto hook = PausePoints::on("node.attach.entered", [&] {
      const auto newer = sessions.attach(SessionId(6), 3);
      ASSERT_TRUE(newer.ok());
      sessions.detach(*newer, 3);
    });
    run(overtaken, std::pair(uint64_t{1}, wire::Attach{SessionId(6), 1, kIncarnation}),
        std::pair(uint64_t{2}, insert(1)));
  }
  EXPECT_TRUE(overtaken.closed == StatusCode::kUnavailable);
  EXPECT_TRUE(overtaken.sent.empty());
  EXPECT_FALSE(there(1));
  RecordingPeer next(4);
  attach(next, 6);
  insert_as(next, 2, 1);
  EXPECT_EQ(inserted(next, 2), StatusCode::kOk) << "the repetition is executed once";
}
#endif

TEST_F(ExecutorSessionTest, FencesOnlyGrow) {
  registry->fence(*epoch_thread, {SessionId(5), {}});
  registry->fence(*epoch_thread, {SessionId(4), {}});  // an older set
  registry->fence(*epoch_thread, {SessionId(5), {SessionId(5)}});
  insert_as(peer, 7, 1);
  EXPECT_TRUE(peer.closed == StatusCode::kFenced);
}

TEST_F(ExecutorSessionTest, WithoutALeaseNothingIsServed) {
  insert_as(peer, 7, 1);
  registry->grant_lease(1);  // a lease that has run out
  peer.sent.clear();
  wire::Scan scan;
  scan.table = kAccounts;
  scan.credits = 1;
  run(peer, std::pair(uint64_t{8}, insert(2)), std::pair(uint64_t{9}, wire::PlainRead{{counter(1)}}),
      std::pair(uint64_t{10}, scan), std::pair(uint64_t{7}, insert(1)));
  for (const uint64_t sequence : {8u, 9u, 10u}) {
    EXPECT_TRUE(peer.answer<wire::Error>(sequence).status == StatusCode::kUnavailable) << sequence;
  }
  EXPECT_TRUE(scans.started.empty());
  EXPECT_EQ(inserted(peer, 7), StatusCode::kOk) << "it was executed, and its sender must not think otherwise";
  EXPECT_EQ(executor->counters().refused.read(), 3u);

  registry->grant_lease(UINT64_MAX);
  peer.sent.clear();
  run(peer, std::pair(uint64_t{8}, insert(2)), std::pair(uint64_t{9}, wire::PlainRead{{counter(1)}}));
  EXPECT_TRUE(peer.answer<wire::Error>(8).status == StatusCode::kUnavailable) << "answered as the first time (R3)";
  EXPECT_EQ(peer.answer<wire::PlainReadReply>(9).results.size(), 1u);
  EXPECT_FALSE(there(2));
}

TEST_F(ExecutorSessionTest, LostRecordsAreNotServedBeforeTheLossIsAccepted) {
  auto lost = registered();
  lost.memory_lost = true;
  ASSERT_TRUE(registry->enter_service(*epoch_thread, lost).ok());
  insert_as(peer, 7, 1);
  const Status refused = peer.answer<wire::Error>(7).status;
  EXPECT_TRUE(refused == StatusCode::kUnavailable);
  EXPECT_NE(refused.message().find("accept-loss 1"), std::string_view::npos) << refused.to_string();
  registry->accept_loss(*epoch_thread);
  insert_as(peer, 8, 1);
  EXPECT_EQ(inserted(peer, 8), StatusCode::kOk);
}

TEST_F(ExecutorSessionTest, AStoppingNodeRefuses) {
  registry->leave_service();
  insert_as(peer, 7, 1);
  EXPECT_TRUE(peer.answer<wire::Error>(7).status == StatusCode::kUnavailable);
}

TEST_F(ExecutorSessionTest, RefusalByALimitAdvisesWhenToRetry) {
  for (uint64_t session = 100; sessions.size() < kMaxSessions; ++session) {
    ASSERT_TRUE(sessions.attach(SessionId(session), session).ok());
  }
  RecordingPeer more(2);
  run(more, std::pair(uint64_t{1}, wire::Attach{SessionId(6), 1, kIncarnation}));
  const auto refused = more.answer<wire::Error>(1);
  EXPECT_TRUE(refused.status == StatusCode::kOverloaded);
  EXPECT_EQ(refused.retry_after_ns, kSessionRetryNs);
  EXPECT_FALSE(more.attached());
}

}  // namespace
}  // namespace loam::storage
