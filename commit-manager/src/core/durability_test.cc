// The core while its disk is busy: deferred replies, continued work, and crashes (R11, commit log and restart of the
// commit manager).
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/src/catalog/durable_state.h"
#include "commit-manager/testing/durability_fixture.h"
#include "common/testing/random.h"

namespace loam::commit {
namespace {

using testing::Random;
using wire::Begin;
using wire::BeginReply;
using wire::CompleteReply;
using wire::CreateTableReply;
using wire::DropTable;
using wire::DropTableReply;
using wire::GetCatalog;
using wire::GetCatalogReply;
using wire::InstallTable;
using wire::OpenSession;
using wire::OpenSessionReply;
using wire::RegisterNodeReply;
using wire::RenewNode;
using wire::RenewNodeReply;
using wire::RenewSessionReply;

/// The duration of a stall of the disk.
constexpr uint64_t kStallNs = 5'000'000'000;

TEST_F(DurabilityTest, ADiskThatStallsCostsNoLeaseAndStopsNoBegin) {
  start();
  serve();
  const PeerId creator = h->client();
  h->post(creator, table("accounts"));
  ASSERT_TRUE(h->core.statistics().storing);
  const uint64_t until = h->now_ns + kStallNs;
  uint64_t begins = 0;
  while (h->now_ns < until) {
    const auto begun = h->call<BeginReply>(client, Begin{3, true});
    ASSERT_TRUE(begun.ok()) << begun.error.to_string();
    ASSERT_TRUE(h->call<CompleteReply>(client, wire::Complete{{{begun->first_id, true}}}).ok());
    ASSERT_TRUE(h->call<RenewSessionReply>(creator, wire::RenewSession{}).ok());
    h->post(node, RenewNode{});
    ASSERT_TRUE(h->newest<RenewNodeReply>(node).ok());
    h->run_for(kLease / 8);
    ++begins;
  }
  EXPECT_GT(begins, 10u);
  EXPECT_TRUE(no_messages(creator)) << "the table is not stored, so it is not created";
  EXPECT_EQ(disk.started, h->core.statistics().durable_stores + 1) << "one store is under way";
  EXPECT_EQ(h->core.statistics().sessions, 2u);
  EXPECT_EQ(h->core.statistics().node_leases_expired, 0u);
  EXPECT_EQ(h->core.statistics().nodes_live, 1u);
  EXPECT_TRUE(std::ranges::any_of(h->outbox.log_events, [](const std::string& line) {
    return line.find("has not stored the state") != std::string::npos;
  })) << "operators get a log line";
  h->core.check_invariants();

  finish();
  acknowledge_tables();
  EXPECT_TRUE(no_messages(creator)) << "its visibility to clients has to be stored too";
  finish();
  EXPECT_TRUE(h->newest<CreateTableReply>(creator).ok());
  EXPECT_FALSE(h->core.statistics().storing);
  h->core.check_invariants();
}

TEST_F(DurabilityTest, NodesHearOfATableWhenItsNumberIsStored) {
  start();
  serve();
  h->post(client, table("accounts"));
  EXPECT_TRUE(no_messages(node));
  finish();
  const auto install = h->receive<InstallTable>(node);
  ASSERT_TRUE(install.ok()) << install.error.to_string();
  EXPECT_GT(decode_state(disk.state)->next_table, install->table.id);
}

TEST_F(DurabilityTest, RepliesToChangesComeInTheOrderOfTheChanges) {
  start();
  serve();
  h->core.on_peer_disconnected(node);
  h->run_for(2 * kLease);  // without nodes every change is done at once
  finish();
  client = h->client();
  finish();
  const uint64_t stores = disk.started;
  std::vector<uint64_t> asked;
  for (const char* name : {"a", "b", "c", "a"}) asked.push_back(h->post(client, table(name)));
  asked.push_back(h->post(client, DropTable{"b"}));
  EXPECT_TRUE(no_messages(client));
  EXPECT_EQ(disk.started, stores + 1);
  ASSERT_TRUE(disk.finish(h->core));
  EXPECT_EQ(disk.started, stores + 2) << "all changes made meanwhile share one state";
  std::vector<uint64_t> answered;
  answered.push_back(h->receive<CreateTableReply>(client).sequence);
  EXPECT_TRUE(no_messages(client)) << "the second state is not stored";
  ASSERT_TRUE(disk.finish(h->core));
  for (int i = 0; i < 3; ++i) answered.push_back(h->receive<CreateTableReply>(client).sequence);
  answered.push_back(h->receive<DropTableReply>(client).sequence);
  EXPECT_EQ(answered, asked);
  EXPECT_FALSE(h->core.statistics().storing);
}

TEST_F(DurabilityTest, ARepeatedRequestIsNotAnsweredBeforeTheFirst) {
  start();
  serve();
  h->core.on_peer_disconnected(node);
  h->run_for(2 * kLease);
  finish();
  const PeerId first = h->connect();
  const auto opened = h->call<OpenSessionReply>(first, OpenSession{"test"});
  ASSERT_TRUE(opened.ok()) << opened.error.to_string();
  const uint64_t sequence = h->post(first, table("a"));
  h->core.on_peer_disconnected(first);
  const PeerId second = h->connect();
  ASSERT_TRUE(h->call<OpenSessionReply>(second, OpenSession{"test", opened->session, opened->manager_epoch}).ok())
      << "a session continues while the disk is busy";
  h->deliver(second, CoreHarness::encoded(table("a"), sequence));
  EXPECT_TRUE(no_messages(second)) << "a crash could still take the table back";
  finish();
  EXPECT_EQ(h->receive<CreateTableReply>(second).sequence, sequence);
  h->deliver(second, CoreHarness::encoded(table("a"), sequence));
  EXPECT_EQ(h->receive<CreateTableReply>(second).sequence, sequence) << "from the window";
  EXPECT_TRUE(no_messages(second));
}

TEST_F(DurabilityTest, ShowsTheCatalogThatIsStored) {
  start();
  serve();
  h->core.on_peer_disconnected(node);
  h->run_for(2 * kLease);
  finish();
  client = h->client();
  const auto names = [&] {
    std::set<std::string> listed;
    const auto reply = h->call<GetCatalogReply>(client, GetCatalog{});
    EXPECT_TRUE(reply.ok()) << reply.error.to_string();
    for (const wire::TableInfo& one : reply->catalog.tables) listed.insert(one.name);
    EXPECT_EQ(h->core.catalog().tables.size(), listed.size());
    EXPECT_EQ(h->call<RenewSessionReply>(client, wire::RenewSession{})->catalog_version, reply->catalog.version);
    EXPECT_EQ(h->call<BeginReply>(client, Begin{1, false})->catalog_version, reply->catalog.version);
    return listed;
  };
  const PeerId creator = h->client();
  h->post(creator, table("a"));
  EXPECT_FALSE(names().contains("a"));
  finish();
  EXPECT_TRUE(names().contains("a"));
  ASSERT_TRUE(h->receive<CreateTableReply>(creator).ok());
  h->post(creator, DropTable{"a"});
  EXPECT_TRUE(names().contains("a")) << "a crash could bring it back";
  std::optional<StatusCode> again;
  h->core.drop_table({"a", {}}, [&](const Result<DropTableReply>& result) { again = result.code(); });
  EXPECT_EQ(again, std::nullopt) << "the drop is not stored yet";
  finish();
  EXPECT_EQ(again, StatusCode::kNoSuchTable);
  EXPECT_FALSE(names().contains("a"));
}

TEST_F(DurabilityTest, ANodeIsRegisteredWhenItsIncarnationIsStored) {
  start();
  const PeerId first = register_node("tcp://a:1");
  EXPECT_TRUE(no_messages(first));
  for (uint64_t waited = 0; waited < kStallNs; waited += kLease / 4) h->run_for(kLease / 4);
  EXPECT_EQ(h->core.statistics().node_leases_expired, 0u) << "it waits for the manager, not the other way round";
  EXPECT_TRUE(h->outbox.closed.empty());
  const PeerId early = h->connect();
  EXPECT_EQ(h->call<OpenSessionReply>(early, OpenSession{"test"}).error.code(), StatusCode::kUnavailable)
      << "the shard map is not stored";
  h->core.check_invariants();
  finish();
  const auto registered = h->receive<RegisterNodeReply>(first);
  ASSERT_TRUE(registered.ok()) << registered.error.to_string();
  EXPECT_EQ(registered->incarnation, decode_state(disk.state)->nodes.at(0).incarnation);
  EXPECT_EQ(registered->catalog.shards.owners.front(), registered->node);
  h->run_for(kLease);
  EXPECT_EQ(h->core.statistics().node_leases_expired, 0u) << "its lease counts from the reply";

  // It loses its connection while the disk stalls. A registration with the same incarnation needs no store.
  h->core.create_table(table("a"), [](const Result<CreateTableReply>&) {});
  ASSERT_TRUE(h->core.statistics().storing);
  h->core.on_peer_disconnected(first);
  const PeerId back = register_node("tcp://a:1", registered->incarnation);
  EXPECT_TRUE(h->receive<RegisterNodeReply>(back).ok());
  EXPECT_TRUE(no_messages(back)) << "the node hears of the table when the table is stored";
  finish();
  EXPECT_TRUE(h->newest<InstallTable>(back).ok());

  // Its next process replaces it when the registration is stored. The earlier process keeps running until then.
  h->core.create_table(table("b"), [](const Result<CreateTableReply>&) {});
  const PeerId next = register_node("tcp://a:1");
  const PeerId before = register_node("tcp://a:1", registered->incarnation);
  EXPECT_TRUE(no_messages(next) && no_messages(before));
  const PeerId third = register_node("tcp://a:1");
  finish();
  EXPECT_EQ(h->receive<RegisterNodeReply>(before).error.code(), StatusCode::kFenced);
  EXPECT_TRUE(no_messages(next)) << "it was replaced in turn";
  EXPECT_TRUE(h->outbox.closed.contains(next));
  EXPECT_EQ(h->receive<RegisterNodeReply>(third)->incarnation, decode_state(disk.state)->nodes.at(0).incarnation);
  h->core.check_invariants();
}

TEST_F(DurabilityTest, ANodeThatWasUnreachableHearsOfTheTablesThatCameAndWentMeanwhile) {
  start();
  serve();
  h->post(client, table("old"));
  finish();
  acknowledge_tables();
  finish();
  const TableId old = h->receive<CreateTableReply>(client)->table.id;
  const Incarnation incarnation = decode_state(disk.state)->nodes.at(0).incarnation;
  const auto unreachable = [&] {
    h->core.on_peer_disconnected(node);
    h->run_for(2 * kLease);
    finish();
    ASSERT_EQ(h->core.statistics().nodes_live, 0u);
  };
  const auto told_of = [&](TableId id) {
    const auto registered = h->receive<RegisterNodeReply>(node);
    EXPECT_TRUE(registered.ok()) << registered.error.to_string();
    return std::ranges::any_of(registered->catalog.tables, [&](const wire::TableInfo& one) { return one.id == id; });
  };

  unreachable();
  client = h->client();
  finish();
  h->post(client, table("new"));
  ASSERT_TRUE(h->core.statistics().storing);
  node = register_node("tcp://a:1", incarnation);
  finish();
  const TableId created = h->receive<CreateTableReply>(client)->table.id;
  EXPECT_TRUE(told_of(created));

  unreachable();
  h->core.drop_table({"old", {}}, [](const Result<DropTableReply>&) {});
  ASSERT_TRUE(h->core.statistics().storing);
  node = register_node("tcp://a:1", incarnation);
  finish();
  EXPECT_FALSE(told_of(old));
  h->core.check_invariants();
}

TEST_F(DurabilityTest, ANodeThatWasUnreachableHearsOfTheShardMapThatWasDealtMeanwhile) {
  CoreOptions two = options();
  two.initial_nodes = 2;
  start(two);
  node = register_node("tcp://a:1");
  finish();
  const auto first = h->receive<RegisterNodeReply>(node);
  ASSERT_TRUE(first.ok()) << first.error.to_string();
  ASSERT_EQ(first->catalog.shards.version, 0u);
  register_node("tcp://b:1");  // the shards are dealt out; that is being stored
  ASSERT_TRUE(h->core.statistics().storing);
  h->core.on_peer_disconnected(node);
  h->run_for(2 * kLease);
  node = register_node("tcp://a:1", first->incarnation);
  finish();
  const auto again = h->receive<RegisterNodeReply>(node);
  ASSERT_TRUE(again.ok()) << again.error.to_string();
  EXPECT_NE(again->catalog.shards.version, 0u);
  h->core.check_invariants();
}

TEST_F(DurabilityTest, ANodeHearsOfAnAcceptedLossWhenItIsStored) {
  start();
  serve();
  h->core.on_peer_disconnected(node);
  h->run_for(kLeaseExpiryNs);
  const PeerId back = register_node("tcp://a:1");
  finish();
  ASSERT_TRUE(h->newest<RegisterNodeReply>(back)->memory_lost);
  std::optional<Status> done;
  h->core.accept_loss(NodeId(1), [&](Status status) { done = std::move(status); });
  EXPECT_TRUE(no_messages(back));
  h->core.on_peer_disconnected(back);
  const PeerId again = register_node("tcp://a:1", h->core.nodes().at(0).info.incarnation);
  EXPECT_TRUE(no_messages(again)) << "its registration says whether the loss is accepted";
  EXPECT_FALSE(done.has_value());
  finish();
  EXPECT_FALSE(h->receive<RegisterNodeReply>(again)->memory_lost);
  EXPECT_FALSE(decode_state(disk.state)->nodes.at(0).memory_lost);
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->ok()) << done->to_string();
}

TEST_F(DurabilityTest, FailedStoreFailsAdministrationAndStopsTheCore) {
  start();
  serve();
  h->post(client, table("a"));
  std::optional<Status> created, dropped;
  h->core.create_table(table("b"), [&](const Result<CreateTableReply>& result) { created = result.status(); });
  h->core.drop_table({"none", {}}, [&](const Result<DropTableReply>& result) { dropped = result.status(); });
  EXPECT_FALSE(created.has_value() || dropped.has_value());
  const uint64_t stores = disk.started;
  ASSERT_TRUE(disk.finish(h->core, {StatusCode::kNoSpace, "the disk is full; make room on that disk"}));
  EXPECT_EQ(h->core.durable_status().code(), StatusCode::kNoSpace);
  ASSERT_TRUE(dropped.has_value());
  EXPECT_EQ(dropped->code(), StatusCode::kNoSpace);
  EXPECT_TRUE(no_messages(client) && no_messages(node));
  h->post(client, Begin{1, false});
  h->run_for(2 * kLease);
  EXPECT_TRUE(no_messages(client) && no_messages(node));
  EXPECT_EQ(disk.started, stores) << "the content of the disk is unknown, so nothing more is stored";
  EXPECT_EQ(h->core.open_recoverer_session(h->now_ns), SessionId(0));
}

/// The commit manager dies at any moment, and the disk answers late, in steps that the seed chooses. Everything that
/// was acknowledged survives, and no number is given out twice.
TEST_F(DurabilityTest, CrashLosesNothingAcknowledged) {
  Random random(testing::test_seed(32));
  std::map<std::string, bool> told;   // by table: it exists
  std::map<std::string, bool> asked;  // of changes under way
  std::set<uint64_t> incarnations;
  uint64_t last_transaction = 0, last_session = 0, last_epoch = 0, crashes_while_storing = 0;
  for (int life = 0; life < 60; ++life) {
    SCOPED_TRACE(life);
    CoreOptions with = options();
    with.ids_ahead = random.between(1, 40);
    start(with);
    ASSERT_GT(h->core.statistics().epoch, last_epoch);
    last_epoch = h->core.statistics().epoch;
    std::set<std::string> found;
    for (const wire::TableInfo& one : h->core.catalog().tables) found.insert(one.name);
    for (const auto& [name, exists] : told) {
      if (asked.contains(name)) continue;
      ASSERT_EQ(found.contains(name), exists) << name;
    }
    for (const auto& [name, exists] : asked) told[name] = found.contains(name);
    asked.clear();
    const PeerId peer = register_node("tcp://a:1");
    finish();
    const auto registered = h->receive<RegisterNodeReply>(peer);
    ASSERT_TRUE(registered.ok()) << registered.error.to_string();
    ASSERT_TRUE(incarnations.insert(registered->incarnation.value).second);
    if (registered->memory_lost) h->core.accept_loss(NodeId(1), [](const Status&) {});
    for (int i = 0; i < 8 && h->core.statistics().restarting; ++i) {
      h->post(peer, RenewNode{});
      h->run_for(kLease / 4);
      finish();
      h->acknowledge_all(peer);
    }
    ASSERT_FALSE(h->core.statistics().restarting);
    h->core.on_peer_disconnected(peer);
    h->run_for(2 * kLease);  // changes wait for the disk alone
    PeerId user = h->connect();
    std::map<uint64_t, std::pair<std::string, bool>> requests;
    for (uint64_t step = random.between(1, 80); step > 0; --step) {
      switch (random.below(4)) {
        case 0:
          user = h->connect();
          h->post(user, OpenSession{"test"});
          break;
        case 1:
          h->post(user, Begin{static_cast<uint32_t>(random.between(1, 9)), false});
          break;
        case 2: {
          const std::string name = "t" + std::to_string(random.below(12));
          if (asked.contains(name)) break;
          const bool create = !told[name];
          const uint64_t sequence = create ? h->post(user, table(name)) : h->post(user, DropTable{name});
          requests[sequence] = {name, create};
          asked[name] = create;
          break;
        }
        default:
          static_cast<void>(disk.finish(h->core));
          break;
      }
      for (auto& [to, queue] : h->outbox.sent) {
        while (!queue.empty()) {
          ByteReader reader(queue.front());
          wire::Envelope envelope;
          ASSERT_TRUE(wire::decode_envelope(reader, envelope).ok());
          if (envelope.opcode == wire::Opcode::kBeginReply) {
            BeginReply begun;
            ASSERT_TRUE(wire::decode_body(reader, begun).ok());
            ASSERT_GT(begun.first_id.value, last_transaction);
            last_transaction = begun.first_id.value;
          } else if (envelope.opcode == wire::Opcode::kOpenSessionReply) {
            OpenSessionReply opened;
            ASSERT_TRUE(wire::decode_body(reader, opened).ok());
            ASSERT_GT(opened.session.value, last_session);
            last_session = opened.session.value;
          } else if (requests.contains(envelope.sequence)) {
            const auto [name, create] = requests[envelope.sequence];
            asked.erase(name);
            if (envelope.opcode != wire::Opcode::kError) told[name] = create;
          }
          queue.pop_front();
        }
      }
      if (!disk.writing.has_value()) h->core.check_invariants();
    }
    crashes_while_storing += disk.writing.has_value() ? 1 : 0;
    if (disk.writing.has_value() && random.one_in(2))
      disk.state = *disk.writing;  // stored, but the core did not hear of it
  }
  EXPECT_GT(last_transaction, 100u);
  EXPECT_GT(crashes_while_storing, 10u);
}

}  // namespace
}  // namespace loam::commit
