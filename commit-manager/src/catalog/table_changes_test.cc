#include "commit-manager/src/catalog/table_changes.h"

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::commit {
namespace {

/// Storage nodes that keep their messages until the test answers them.
struct Nodes final : NodeChannel {
  struct SentMessage {
    NodeId node;
    uint64_t sequence = 0;
    TableId table;
    bool install = false;
    std::optional<std::set<TableId>> catalog = {};  // set if the message is the reply to a registration
  };
  uint64_t next_sequence() override { return ++last_sequence; }
  void install(NodeId node, uint64_t sequence, const wire::InstallTable& message) override {
    sent.push_back({node, sequence, message.table.id, true});
  }
  void remove(NodeId node, uint64_t sequence, const wire::RemoveTable& message) override {
    sent.push_back({node, sequence, message.table, false});
  }
  uint64_t state_number() override { return state; }
  bool is_stored(uint64_t number) const override { return number <= stored; }
  std::vector<SentMessage> sent;
  uint64_t last_sequence = 0;
  uint64_t state = 0;
  uint64_t stored = 0;
};

Schema schema(FieldType type) { return Schema::make({{"id", type, false}}).value(); }

TEST(TableChanges, RepliesComeFromCompleteAcknowledgedAlone) {
  const CoreOptions options;
  CatalogStore catalog(options);
  Nodes nodes;
  TableChanges changes(catalog, nodes);
  int answers = 0;
  changes.create({"a", TableKind::kTransactional, schema(FieldType::kInt64)},
                 [&](const Result<wire::CreateTableReply>&) { ++answers; });
  changes.create({"9", TableKind::kTransactional, schema(FieldType::kInt64)},
                 [&](const Result<wire::CreateTableReply>&) { ++answers; });
  EXPECT_EQ(answers, 0);
  changes.complete_acknowledged();
  EXPECT_EQ(answers, 2);
}

TEST(TableChanges, TellsNodesWhenTheChangeIsStored) {
  const CoreOptions options;
  CatalogStore catalog(options);
  Nodes nodes;
  TableChanges changes(catalog, nodes);
  ASSERT_TRUE(catalog.register_node({"tcp://a:1", "", 1 << 20, Incarnation(0)}).ok());
  nodes.state = 1;
  changes.create({"a", TableKind::kTransactional, schema(FieldType::kInt64)},
                 [](const Result<wire::CreateTableReply>&) {});
  nodes.state = 2;
  changes.create({"b", TableKind::kTransactional, schema(FieldType::kInt64)},
                 [](const Result<wire::CreateTableReply>&) {});
  changes.send_stored();
  changes.resend(NodeId(1));
  EXPECT_TRUE(nodes.sent.empty());
  nodes.stored = 1;
  changes.send_stored();
  changes.send_stored();
  ASSERT_EQ(nodes.sent.size(), 1u);
  changes.resend(NodeId(1));
  EXPECT_EQ(nodes.sent.size(), 2u) << "the first change is sent again";
  nodes.stored = 2;
  changes.send_stored();
  ASSERT_EQ(nodes.sent.size(), 3u);
  EXPECT_NE(nodes.sent[2].table, nodes.sent[0].table);
}

TEST(TableChanges, RandomChangesKeepEveryNodeRight) {
  // Invariants: every serving node has each table that clients see, and no node has a table whose drop was answered.
  // When everything is acknowledged, the tables of the nodes equal those of the catalog.
  testing::Random random(testing::test_seed(21));
  for (int run = 0; run < 40; ++run) {
    const CoreOptions options;
    CatalogStore catalog(options);
    Nodes nodes;
    TableChanges changes(catalog, nodes);
    std::map<NodeId, std::set<TableId>> at_node;  // only serving nodes: they have read a reply and hold a lease
    std::set<NodeId> connected;
    std::set<TableId> dropped;
    int asked = 0;
    int answered = 0;
    const auto deliver = [&](bool all) {
      size_t count = all ? nodes.sent.size() : random.below(nodes.sent.size() + 1);
      for (; count > 0; --count) {
        const Nodes::SentMessage message = nodes.sent.front();  // in order: as on connections
        nodes.sent.erase(nodes.sent.begin());
        if (!connected.contains(message.node)) continue;  // its connection went with it
        if (message.catalog.has_value()) {
          at_node[message.node] = *message.catalog;
          continue;
        }
        Status outcome;
        if (message.install && random.one_in(6)) {
          outcome = Status(StatusCode::kNoSpace, "full");
        } else if (message.install) {
          at_node[message.node].insert(message.table);
        } else {
          at_node[message.node].erase(message.table);
        }
        changes.acknowledge(message.node, message.sequence, std::move(outcome));
      }
      changes.complete_acknowledged();
    };
    for (int step = 0; step < 120; ++step) {
      const std::string name(1, static_cast<char>('a' + random.below(4)));
      switch (random.below(10)) {
        case 0: {
          const std::string address = "tcp://n:" + std::to_string(random.below(6));
          const auto node = catalog.register_node({address, "", 1});
          ASSERT_TRUE(node.ok());
          std::erase_if(nodes.sent, [&](const Nodes::SentMessage& message) { return message.node == node->node; });
          // The node serves its old tables until it has read the reply.
          connected.insert(node->node);
          std::set<TableId> tables;
          for (const wire::TableInfo& table : catalog.catalog(true).tables) tables.insert(table.id);
          nodes.sent.push_back({node->node, 0, TableId(0), false, std::move(tables)});
          changes.resend(node->node);
          break;
        }
        case 1: {
          const NodeId node(random.between(1, catalog.nodes().size() + 1));
          if (!catalog.reachable(node)) break;
          catalog.node_unreachable(node);
          changes.stop_awaiting(node);
          at_node.erase(node);
          connected.erase(node);
          break;
        }
        case 2:
        case 3:
        case 4:
          ++asked;
          changes.create(
              {name, TableKind::kTransactional, schema(random.one_in(4) ? FieldType::kInt32 : FieldType::kInt64)},
              [&](const Result<wire::CreateTableReply>&) { ++answered; });
          break;
        case 5: {
          ++asked;
          const CatalogStore::TableEntry* found = catalog.find(name);
          const TableId id = found == nullptr ? TableId(0) : found->table.id;
          changes.drop({name}, [&, id](const Result<wire::DropTableReply>& result) {
            ++answered;
            if (result.ok()) dropped.insert(id);
          });
          break;
        }
        case 6: {
          const std::string new_name(1, static_cast<char>('a' + random.below(4)));
          const CatalogStore::TableEntry* found = catalog.find(name);
          const TableId id = found == nullptr ? TableId(0) : found->table.id;
          for (int repetitions = random.one_in(4) ? 2 : 1; repetitions > 0; --repetitions) {
            ++asked;
            changes.rename({name, new_name, id}, [&](const Result<wire::RenameTableReply>&) { ++answered; });
          }
          break;
        }
        case 7: {
          const CatalogStore::TableEntry* found = catalog.find(name);
          const std::string field = "f" + std::to_string(random.below(5));
          ++asked;
          changes.add_field({found == nullptr ? TableId(0) : found->table.id,
                             Schema::make({{field, FieldType::kInt64, true}}).value()},
                            [&](const Result<wire::AddFieldReply>&) { ++answered; });
          break;
        }
        default:
          deliver(false);
      }
      changes.complete_acknowledged();
      for (const wire::TableInfo& table : catalog.catalog(false).tables) {
        for (const auto& [node, tables] : at_node) ASSERT_TRUE(tables.contains(table.id)) << table.name;
      }
      for (const auto& [node, tables] : at_node) {
        for (const TableId table : tables) ASSERT_FALSE(dropped.contains(table)) << "dropped, and served";
      }
      catalog.check_invariants();
    }
    while (!nodes.sent.empty()) deliver(true);
    EXPECT_EQ(changes.pending(), 0u);
    EXPECT_EQ(asked, answered) << "every request was answered";
    std::set<TableId> present;
    for (const wire::TableInfo& table : catalog.catalog(true).tables) present.insert(table.id);
    for (const auto& [node, tables] : at_node) EXPECT_EQ(tables, present);
  }
}

}  // namespace
}  // namespace loam::commit
