// Limits while the core's disk is busy: on waiting replies, on waiting begins, and on new sessions.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/src/catalog/durable_state.h"
#include "commit-manager/testing/durability_fixture.h"

namespace loam::commit {
namespace {

using wire::Begin;
using wire::BeginReply;
using wire::CreateTableReply;
using wire::DropTable;
using wire::DropTableReply;
using wire::OpenSession;
using wire::OpenSessionReply;

/// Clients and nodes can ask faster than a disk that stalls stores.
TEST_F(DurabilityTest, RepliesThatWaitAreBounded) {
  CoreOptions few = options();
  few.max_deferred_replies = 8;
  few.max_deferred_reply_bytes = 2'000;
  start(few);
  serve();
  h->core.create_table(table("a"), [](const Result<CreateTableReply>&) {});
  ASSERT_TRUE(h->core.statistics().storing);
  size_t overloaded = 0, answered = 0;
  for (int i = 0; i < 20; ++i) {
    h->core.drop_table({"none", {}}, [&](const Result<DropTableReply>& result) {
      overloaded += result.code() == StatusCode::kOverloaded;
      answered += result.code() == StatusCode::kNoSuchTable;
    });
  }
  EXPECT_EQ(overloaded, 12u);
  EXPECT_EQ(answered, 0u);
  EXPECT_EQ(h->core.statistics().deferred_replies, 8u);
  h->post(client, table("b"));
  EXPECT_EQ(h->receive<CreateTableReply>(client).error.code(), StatusCode::kOverloaded);
  h->post(client, DropTable{"none"});
  EXPECT_EQ(h->receive<DropTableReply>(client).error.code(), StatusCode::kOverloaded);
  h->post(client, wire::FinishIndex{TableId(7)});
  EXPECT_EQ(h->receive<wire::FinishIndexReply>(client).error.code(), StatusCode::kOverloaded);
  const PeerId refused = register_node("tcp://a:1", Incarnation(77));
  EXPECT_TRUE(h->outbox.closed.contains(refused));
  EXPECT_EQ(h->core.statistics().deferred_replies, 8u);
  finish();
  EXPECT_EQ(answered, 8u);

  // Two replies with large definitions are too much.
  wire::CreateTable large = table("large");
  std::vector<Field> fields;
  for (int i = 0; i < 30; ++i) fields.push_back({std::string(40, 'f') + std::to_string(i), FieldType::kInt64, false});
  large.schema = Schema::make(std::move(fields)).value();
  h->post(client, large);
  finish();
  acknowledge_tables();
  finish();
  ASSERT_TRUE(h->newest<CreateTableReply>(client).ok());
  h->core.create_table(table("c"), [](const Result<CreateTableReply>&) {});
  h->post(client, large);
  h->post(client, large);
  EXPECT_TRUE(no_messages(client));
  h->post(client, large);
  EXPECT_EQ(h->receive<CreateTableReply>(client).error.code(), StatusCode::kOverloaded);
  finish();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(h->receive<CreateTableReply>(client)->existed);
  EXPECT_EQ(h->core.statistics().deferred_replies, 0u);

  // Nodes that connect again and again add nothing.
  h->core.create_table(table("d"), [](const Result<CreateTableReply>&) {});
  for (int i = 0; i < 100; ++i) register_node("tcp://c:1");
  EXPECT_EQ(h->core.statistics().deferred_replies, 0u);
  finish();
  h->core.check_invariants();
}

TEST_F(DurabilityTest, BeginsLastAsLongAsReservedIdsAndThenWait) {
  CoreOptions few = options();
  few.ids_ahead = 100;
  few.max_queued_begins = 3;
  start(few);
  serve();
  const uint64_t bound = decode_state(disk.state)->transactions.value;
  uint64_t last = 0;
  uint64_t given = 0;
  std::vector<uint64_t> waiting;
  for (; given < 200; ++given) {
    const uint64_t sequence = h->post(client, Begin{1, false});
    if (no_messages(client)) {
      waiting.push_back(sequence);
      break;
    }
    last = h->receive<BeginReply>(client)->first_id.value;
  }
  EXPECT_EQ(last, bound) << "every id that is reserved is given, and no other";
  EXPECT_GE(given, few.ids_ahead) << "the next ones were asked for in time";
  EXPECT_TRUE(h->call<BeginReply>(client, Begin{0, true}).ok()) << "a snapshot needs no id";
  const PeerId other = h->client();
  h->post(other, Begin{2, false});
  waiting.push_back(h->post(client, Begin{5, true}));
  EXPECT_EQ(h->core.statistics().queued_begins, few.max_queued_begins);
  const auto refused = h->call<BeginReply>(client, Begin{1, false});
  EXPECT_EQ(refused.error.code(), StatusCode::kOverloaded) << refused.error.to_string();
  h->core.check_invariants();

  ASSERT_TRUE(disk.finish(h->core));
  const auto first = h->receive<BeginReply>(client);
  EXPECT_EQ(first.sequence, waiting[0]);
  EXPECT_EQ(first->first_id.value, last + 1);
  EXPECT_EQ(h->receive<BeginReply>(other)->first_id.value, last + 2) << "in the order in which they came";
  const auto third = h->receive<BeginReply>(client);
  EXPECT_EQ(third.sequence, waiting[1]);
  EXPECT_EQ(third->first_id.value, last + 4);
  EXPECT_EQ(h->core.statistics().queued_begins, 0u);
  h->core.check_invariants();
}

TEST_F(DurabilityTest, ABeginThatWaitsEndsWithItsSession) {
  CoreOptions few = options();
  few.ids_ahead = 2;
  start(few);
  serve();
  while (h->core.statistics().queued_begins == 0) h->post(client, Begin{1, false});
  const PeerId other = h->client();
  h->post(other, Begin{1, false});
  ASSERT_EQ(h->core.statistics().queued_begins, 2u);
  h->post(client, wire::CloseSession{});
  finish();
  EXPECT_TRUE(h->receive<BeginReply>(other).ok());
  EXPECT_EQ(h->core.statistics().queued_begins, 0u);
  h->core.check_invariants();
}

TEST_F(DurabilityTest, SessionsStayBelowTheirBound) {
  CoreOptions few = options();
  few.ids_ahead = 4;
  start(few);
  serve();
  h->core.create_table(table("a"), [](const Result<CreateTableReply>&) {});
  SessionId last;
  Status refused;
  for (int i = 0; i < 20 && refused.ok(); ++i) {
    const PeerId peer = h->connect();
    const auto opened = h->call<OpenSessionReply>(peer, OpenSession{"test"});
    if (opened.ok()) last = opened->session;
    refused = opened.error;
  }
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable) << refused.to_string();
  EXPECT_EQ(last, decode_state(disk.state)->sessions);
  EXPECT_EQ(h->core.open_recoverer_session(h->now_ns), SessionId(0));
  h->core.check_invariants();
  finish();
  EXPECT_TRUE(h->call<OpenSessionReply>(h->connect(), OpenSession{"test"}).ok());
  EXPECT_NE(h->core.open_recoverer_session(h->now_ns), SessionId(0));
}

}  // namespace
}  // namespace loam::commit
