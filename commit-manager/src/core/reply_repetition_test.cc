// Requests that come again after their replies were lost, at the largest sizes that are allowed (R3, idempotent
// requests within a session).
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"
#include "common/wire/reply_window.h"

namespace loam::commit {
namespace {

using wire::Begin;
using wire::BeginReply;
using wire::CloseSessionReply;
using wire::Complete;
using wire::CompleteReply;
using wire::CreateTable;
using wire::CreateTableReply;
using wire::GetOutcomes;
using wire::GetOutcomesReply;
using wire::OpenSession;
using wire::OpenSessionReply;

constexpr size_t kRequests = wire::kManagerReplyWindow.requests;

/// A table whose definition takes almost as much as a request may have.
CreateTable wide_table(const std::string& name) {
  std::vector<Field> fields;
  for (size_t i = 0; i < kMaxFields; ++i) {
    std::string field = std::to_string(i);
    field.resize(kMaxNameBytes, 'x');
    fields.push_back({std::move(field), FieldType::kInt64, false});
  }
  return {name, TableKind::kTransactional, Schema::make(std::move(fields)).value()};
}

struct ReplyRepetitionTest : ::testing::Test {
  void start(const CoreOptions& options = CoreHarness::open_at_once()) {
    h = std::make_unique<CoreHarness>(options);
    connection = h->connect();
    const auto opened = h->call<OpenSessionReply>(connection, OpenSession{"test"});
    ASSERT_TRUE(opened.ok()) << opened.error.to_string();
    session = opened->session;
    epoch = opened->manager_epoch;
  }
  /// Everything that the client was sent since the last call.
  std::vector<Buffer> received() {
    auto& queue = h->outbox.sent[connection];
    std::vector<Buffer> all(queue.begin(), queue.end());
    queue.clear();
    return all;
  }
  void reconnect() {
    h->core.on_peer_disconnected(connection);
    connection = h->connect();
    ASSERT_TRUE(h->call<OpenSessionReply>(connection, OpenSession{"test", session, epoch}).ok());
  }
  /// Other clients hold `open` transactions open, and a younger one is complete: snapshots name them all.
  void fill(size_t open) {
    while (open > 0) {
      const PeerId other = h->client();
      for (size_t held = 0; held < kMaxOpenPerSession && open > 0;) {
        const auto count = static_cast<uint32_t>(std::min<size_t>({open, wire::kMaxBegins, kMaxOpenPerSession - held}));
        ASSERT_TRUE(h->call<BeginReply>(other, Begin{count, false}).ok());
        held += count;
        open -= count;
      }
    }
    const PeerId last = h->client();
    const auto begun = h->call<BeginReply>(last, Begin{1, false});
    ASSERT_TRUE(begun.ok());
    ASSERT_TRUE(h->call<CompleteReply>(last, Complete{{{begun->first_id, true}}}).ok());
  }

  std::unique_ptr<CoreHarness> h;
  PeerId connection;
  SessionId session;
  uint64_t epoch = 0;
  uint64_t next_sequence = 1'000'000;
};

TEST_F(ReplyRepetitionTest, RepeatsAllRepliesOfTheLargestClient) {
  start();
  constexpr uint32_t kCount = kMaxOpenPerSession / kRequests;
  fill(kMaxOpenIds - kMaxOpenPerSession);
  std::vector<Buffer> requests;
  for (size_t i = 0; i < kRequests; ++i) {
    requests.push_back(CoreHarness::encoded(Begin{kCount, i % 2 == 0}, 1'000'000 + i));
    h->deliver(connection, requests.back());
  }
  const std::vector<Buffer> first = received();
  ASSERT_EQ(first.size(), kRequests);
  EXPECT_GT(first.back().size(), kMaxOpenIds - kMaxOpenPerSession) << "each names every open transaction";
  ASSERT_EQ(h->core.statistics().open, kMaxOpenIds) << "no more are allowed";
  for (int round = 0; round < 2; ++round) {
    reconnect();
    for (const Buffer& request : requests) h->deliver(connection, request);
    EXPECT_TRUE(received() == first) << "byte by byte";
  }
  EXPECT_EQ(h->core.statistics().open, kMaxOpenIds) << "executed once";
  EXPECT_EQ(h->core.statistics().repeated, 2 * kRequests);
  EXPECT_EQ(h->core.statistics().sessions_lost, 0u);
  EXPECT_EQ(h->core.statistics().retained_reply_bytes, 0u) << "the snapshots are held anyhow";
  h->core.check_invariants();
}

TEST_F(ReplyRepetitionTest, AReadOnlyBeginIsAnsweredAgainUntilItsSnapshotIsReleased) {
  start();
  fill(5'000);
  const Buffer request = CoreHarness::encoded(Begin{0, true}, 1'000'000);
  h->deliver(connection, request);
  const std::vector<Buffer> first = received();
  ASSERT_EQ(first.size(), 1u);
  reconnect();
  h->deliver(connection, request);
  EXPECT_TRUE(received() == first);
  h->post(connection, wire::ReleaseSnapshots{{1}});  // only a client that has had the answer knows the number
  h->deliver(connection, request);
  EXPECT_EQ(h->receive<BeginReply>(connection).error.code(), StatusCode::kUnknownOutcome);
  EXPECT_EQ(h->core.statistics().sessions_lost, 1u) << "the session ends";
  h->core.check_invariants();
}

/// An upgrade has the first id, and an older snapshot than the one that the same message registers.
TEST_F(ReplyRepetitionTest, ABeginWithAnUpgradeIsAnsweredAgainWithTheSnapshotThatItRegistered) {
  start();
  fill(5'000);
  const auto upgradable = h->call<BeginReply>(connection, Begin{0, false, true, {}});
  ASSERT_TRUE(upgradable.ok()) << upgradable.error.to_string();
  fill(5'000);  // later snapshots see more
  received();
  for (const Begin& begin :
       {Begin{0, true, false, {upgradable->upgradable_number}}, Begin{0, false, true, {upgradable->upgradable_number}},
        Begin{0, false, false, {upgradable->upgradable_number}}}) {
    const uint64_t sequence = next_sequence++;
    const Buffer request = CoreHarness::encoded(begin, sequence);
    h->deliver(connection, request);
    const std::vector<Buffer> first = received();
    ASSERT_EQ(first.size(), 1u);
    reconnect();
    h->deliver(connection, request);
    EXPECT_TRUE(received() == first) << "byte by byte";
  }
  EXPECT_EQ(h->core.statistics().upgrades, 3u) << "each is executed once";
  h->core.check_invariants();
}

TEST_F(ReplyRepetitionTest, KeepsTheLargestRepliesOfARound) {
  start();
  std::vector<Buffer> requests = {CoreHarness::encoded(wide_table("wide"), 1'000'000),
                                  CoreHarness::encoded(GetOutcomes{std::vector(400'000, TransactionId(1))}, 1'000'001)};
  while (requests.size() < kRequests) {
    requests.push_back(CoreHarness::encoded(Begin{1, false}, 1'000'000 + requests.size()));
  }
  for (const Buffer& request : requests) h->deliver(connection, request);
  const std::vector<Buffer> first = received();
  ASSERT_EQ(first.size(), kRequests);
  EXPECT_GT(first[0].size(), kMaxFields * kMaxNameBytes);
  EXPECT_GT(first[1].size(), 400'000u);
  EXPECT_EQ(h->core.statistics().retained_reply_bytes, first[0].size() + first[1].size());
  EXPECT_LE(requests[0].size(), wire::kMaxManagerReplyBytes);
  reconnect();
  for (const Buffer& request : requests) h->deliver(connection, request);
  EXPECT_TRUE(received() == first);
}

TEST_F(ReplyRepetitionTest, RefusesRequestWhoseReplyItCannotKeep) {
  CoreOptions options = CoreHarness::open_at_once();
  const size_t one = CoreHarness::encoded(wide_table("a"), 1).size();
  options.max_retained_reply_bytes = 2 * one + one / 2;
  start(options);
  for (const char* name : {"a", "b"}) ASSERT_TRUE(h->call<CreateTableReply>(connection, wide_table(name)).ok());
  const PeerId other = h->client();
  const Buffer third = CoreHarness::encoded(wide_table("c"), 1'000'000);
  for (int repetition = 0; repetition < 2; ++repetition) {
    h->deliver(other, third);
    const auto refused = h->receive<CreateTableReply>(other);
    EXPECT_EQ(refused.error.code(), StatusCode::kOverloaded) << refused.error.to_string();
  }
  EXPECT_EQ(h->core.catalog().tables.size(), 3u) << "it was not executed";
  EXPECT_TRUE(h->call<BeginReply>(other, Begin{1, false}).ok()) << "small replies have room of their own";
  EXPECT_TRUE(h->call<CloseSessionReply>(connection, wire::CloseSession{}).ok());
  EXPECT_EQ(h->core.statistics().retained_reply_bytes, 0u);
  EXPECT_TRUE(h->call<CreateTableReply>(other, wide_table("c")).ok());
}

}  // namespace
}  // namespace loam::commit
