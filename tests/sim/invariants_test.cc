// Plants each kind of violation in an otherwise correct history; the oracle must name exactly that invariant.
#include "tests/sim/invariants.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/history_builder.h"
#include "tests/sim/oracle.h"
#include "tests/sim/planted_fixture.h"

namespace loam::sim {
namespace {

using Kind = PlainModel::Kind;

/// Violations in non-transactional records, counters, tables, sessions, trees, indexes and nodes.
constexpr PlantedViolation kNotInTransactions[] = {
    {"plain-version-returned",
     [](HistoryBuilder& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_put(1, Kind::kUpdate, 50, 2, 50);
     }},
    {"plain-lost-update",
     [](HistoryBuilder& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_put(1, Kind::kUpdate, 50, 2, 51);
       s.plain_put(1, Kind::kUpdate, 50, 3, 52);
     }},
    {"plain-lost-update",
     [](HistoryBuilder& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_put(1, Kind::kInsert, 0, 2, 51);
     }},
    {"plain-applied-twice",
     [](HistoryBuilder& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_read(1, 51, 1);
     }},
    {"plain-refused-visible",
     [](HistoryBuilder& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 0, StatusCode::kAlreadyExists);
       s.plain_read(1, 50, 1);
     }},
    {"plain-stale-read",
     [](HistoryBuilder& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_put(1, Kind::kUpdate, 50, 2, 51);
       s.plain_read(1, 50, 1);
     }},
    {"plain-write-lost",
     [](HistoryBuilder& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_read(1, 0, 0);
     }},
    {"plain-unwritten-read", [](HistoryBuilder& s) { s.plain_read(1, 50, 1); }},
    {"plain-wrong-value",
     [](HistoryBuilder& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50, StatusCode::kOk, 7);
       s.plain_put(1, Kind::kUpdate, 50, 2, 51, StatusCode::kOk, std::nullopt);
       s.plain_read(1, 51, 2, 8);
     }},
    {"plain-wrong-refusal",
     [](HistoryBuilder& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_put(1, Kind::kUpdate, 50, 2, 0, StatusCode::kConflict);
     }},
    {"counter-twice",
     [](HistoryBuilder& s) {
       s.oracle.counters().drew(1, "c", 7);
       s.oracle.counters().drew(2, "c", 7);
     }},
    {"counter-order",
     [](HistoryBuilder& s) {
       s.oracle.counters().drew(1, "c", 7);
       s.oracle.counters().drew(1, "c", 6);
     }},
    {"create-twice",
     [](HistoryBuilder& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.created("t", TableId(2001), "(a)", "(a)", s.oracle.now());
     }},
    {"create-schema", [](HistoryBuilder& s) { s.tables.created("t", TableId(2000), "(b)", "(a)", s.oracle.now()); }},
    {"create-refused",
     [](HistoryBuilder& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.create_refused("t", "(a)", s.oracle.now());
     }},
    {"table-id-twice",
     [](HistoryBuilder& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.created("u", TableId(2000), "(a)", "(a)", s.oracle.now());
     }},
    {"table-lost",
     [](HistoryBuilder& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.refused(TableId(2000), s.oracle.now());
     }},
    {"table-lost",
     [](HistoryBuilder& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.listed(s.oracle.now());
     }},
    {"added-field",
     [](HistoryBuilder& s) {
       AddedFieldModel& model = s.oracle.added_fields();
       const std::optional<uint64_t> of_the_insert = 7;
       model.wrote({TableId(2000), Key(1)}, 7, 1, true);
       model.wrote({TableId(2000), Key(1)}, 8, 1, false);
       model.read({TableId(2000), Key(1)}, 8, {&of_the_insert, 1});
     }},
    {"added-field",
     [](HistoryBuilder& s) {
       AddedFieldModel& model = s.oracle.added_fields();
       const std::optional<uint64_t> of_another_record = 7;
       model.wrote({TableId(2000), Key(1)}, 7, 1, true);
       model.wrote({TableId(2000), Key(2)}, 8, 0, false);
       model.read({TableId(2000), Key(2)}, 8, {&of_another_record, 1});
     }},
    {"added-field",
     [](HistoryBuilder& s) {
       AddedFieldModel& model = s.oracle.added_fields();
       const std::optional<uint64_t> of_the_record_before = 7;
       model.wrote({TableId(2000), Key(1)}, 7, 1, true);
       model.wrote({TableId(2000), Key(1)}, 8, 0, true);
       model.read({TableId(2000), Key(1)}, 8, {&of_the_record_before, 1});
     }},
    {"added-field-lost",
     [](HistoryBuilder& s) {
       s.oracle.added_fields().added(TableId(2000), 1);
       s.oracle.added_fields().opened(TableId(2000), 0, s.oracle.now() + 1);
     }},
    {"dropped-table-read",
     [](HistoryBuilder& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.drop_returned(s.tables.drop_called("t"), StatusCode::kOk);
       s.tables.served(TableId(2000), s.oracle.now());
     }},
    {"dropped-table-read",
     [](HistoryBuilder& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.drop_called("t");  // its client crashed
       s.tables.refused(TableId(2000), s.oracle.now());
       s.tables.opened("t", TableId(2000), "(a)", s.oracle.now());
     }},
    {"over-age", [](HistoryBuilder& s) { s.sessions.committed_after(1, TransactionId(10), 151'000'000, 100'000'000); }},
    {"snapshot-refused",
     [](HistoryBuilder& s) {
       s.sessions.too_old(1, 3);
       s.sessions.committed(1, 3, s.oracle.now());
     }},
    {"sequence-reused",
     [](HistoryBuilder& s) {
       s.request_received(7, 3, 1, TransactionId(50));
       s.request_received(7, 3, 1, TransactionId(51));
     }},
    {"idle-session-ended",
     [](HistoryBuilder& s) {
       s.sessions.idled(1, 100'000'000, false);
       s.sessions.idled(1, 100'000'000, true);
     }},
    {"tree-lost-key",
     [](HistoryBuilder& s) {
       s.tree_put("k", 1);
       s.tree_read("k", std::nullopt);
     }},
    {"tree-lost-key",
     [](HistoryBuilder& s) {
       s.tree_put("k", 1);
       s.tree_put("l", 2);
       const std::vector<TreeModel::SeenEntry> entries = {{"k", 1}};
       s.oracle.trees().walked(1, "a", "", entries, s.oracle.now());
     }},
    {"tree-phantom",
     [](HistoryBuilder& s) {
       s.tree_put("k", 1);
       s.tree_put("k", std::nullopt);
       s.tree_read("k", 1);
     }},
    {"tree-phantom", [](HistoryBuilder& s) { s.tree_read("k", 7); }},
    {"tree-phantom",
     [](HistoryBuilder& s) {
       const std::vector<TreeModel::SeenEntry> entries = {{"k", 7}};
       s.oracle.trees().walked(1, "a", "", entries, s.oracle.now());
     }},
    {"tree-answer",
     [](HistoryBuilder& s) {
       s.tree_put("k", 1);
       s.tree_put("k", std::nullopt, StatusCode::kNotFound);
     }},
    {"tree-answer", [](HistoryBuilder& s) { s.tree_put("k", 1, StatusCode::kAlreadyExists); }},
    {"tree-order",
     [](HistoryBuilder& s) {
       s.tree_put("k", 1);
       const std::vector<TreeModel::SeenEntry> entries = {{"k", 1}, {"k", 1}};
       s.oracle.trees().walked(1, "", "", entries, s.oracle.now());
     }},
    {"tree-structure", [](HistoryBuilder& s) { s.oracle.trees().checked("a node with two parents"); }},
    {"index-unique",
     [](HistoryBuilder& s) {
       s.index(900, UniqueBy::kValue);
       s.insert_equal_values(10, {1, 2});
       s.model.scanned(s.begin(0), HistoryBuilder::kTable, s.equal_value_rows(10, {1, 2}), s.oracle.now());
     }},
    {"index-unique",
     [](HistoryBuilder& s) {
       s.index(900, UniqueBy::kValue);
       s.drop_index();
       s.index(901, UniqueBy::kValue);
       s.insert_equal_values(10, {1, 2});
       s.model.scanned(s.begin(0), HistoryBuilder::kTable, s.equal_value_rows(10, {1, 2}), s.oracle.now());
     }},
    {"index-damaged",
     [](HistoryBuilder& s) {
       s.index(900);
       s.indexes.malformed("i", s.oracle.now());
     }},
    {"index-damaged",
     [](HistoryBuilder& s) {
       s.index(900);
       s.lose_odd_keys();
       s.drop_index();
       s.index(901);
       s.indexes.malformed("i", s.oracle.now());
     }},
    {"index-damaged",
     [](HistoryBuilder& s) {
       s.index(900);
       s.indexes.malformed_commit(std::vector{HistoryBuilder::kTable}, s.oracle.now());
     }},
    {"index-undamaged",
     [](HistoryBuilder& s) {
       s.index(900);
       s.lose_odd_keys();
       s.indexes.read(TableId(900), s.oracle.now());
     }},
    {"index-undamaged",
     [](HistoryBuilder& s) {
       s.index(900);
       s.lose_odd_keys(), s.index(900);  // the index is ready after the acceptance
     }},
    {"index-gone",
     [](HistoryBuilder& s) {
       s.index(900);
       s.indexes.absent("i", s.oracle.now());
     }},
    {"index-gone",
     [](HistoryBuilder& s) {
       s.index(900);
       s.drop_index();
       s.index(901);
       s.indexes.refused(TableId(901), s.oracle.now());
     }},
    {"index-gone",
     [](HistoryBuilder& s) {
       s.index(900);
       s.index(901);
     }},
    {"index-refused",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       s.refuse_index(UniqueBy::kValue);
     }},
    {"index-refused",
     [](HistoryBuilder& s) {
       s.insert_equal_values(10, {1, 2});
       s.put(11, {2}, WriteKind::kUpdate);
       s.refuse_index(UniqueBy::kValue);
     }},
    {"index-refused",
     [](HistoryBuilder& s) {
       s.insert_equal_values(10, {1, 2});
       s.refuse_index(UniqueBy::kTag);
     }},
    {"index-hits",
     [](HistoryBuilder& s) { s.indexes.check_changed_count("i", TransactionId(10), 1, 2, s.oracle.now()); }},
    {"wrong-refusal",
     [](HistoryBuilder& s) {
       s.index(900, UniqueBy::kValue);
       s.put(10, {1, 2});
       const auto writer = s.begin(11);
       s.read(writer, 1, 10);
       s.write(writer, 1);
       s.end(writer, StatusCode::kAlreadyExists);
     }},
    {"scan-exactly-once",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       const auto reader = s.begin(0);
       s.scan(reader, {{1, 10}, {2, 10}});
       const std::vector<ScannedRow> rows = {{Key(1), HistoryBuilder::seen(10, 1)}};
       s.model.ranged(reader, HistoryBuilder::kTable, {0, 9'999}, rows, s.oracle.now(), ScanKind::kIndex);
     }},
    {"scan-predicate",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       const std::vector<ScannedRow> rows = {{Key(1), HistoryBuilder::seen(10, 1)}};
       s.model.ranged(s.begin(0), HistoryBuilder::kTable, {0, 9}, rows, s.oracle.now(), ScanKind::kIndex);
     }},
    {"own-write-unread",
     [](HistoryBuilder& s) {
       const auto writer = s.begin(10);
       s.insert(writer, 1);
       s.model.scanned(writer, HistoryBuilder::kTable, {}, s.oracle.now(), ScanKind::kIndex);
     }},
    {"index-phantom",
     [](HistoryBuilder& s) { s.indexes.check_entries("i", {{"a", Key(1)}, {"b", Key(1)}}, {{"b", Key(1)}}); }},
    {"index-lost-key",
     [](HistoryBuilder& s) { s.indexes.check_entries("i", {{"a", Key(1)}}, {{"a", Key(1)}, {"a", Key(2)}}); }},
    {"index-lost-key",
     [](HistoryBuilder& s) {
       s.indexes.found("i", TransactionId(10), {HistoryBuilder::kTable, Key(1)}, HistoryBuilder::seen(9, 1),
                       std::nullopt);
     }},
    {"index-lost-key",
     [](HistoryBuilder& s) {
       s.indexes.found("i", TransactionId(10), {HistoryBuilder::kTable, Key(1)}, HistoryBuilder::seen(9, 1), Key(2));
     }},
    {"index-blocked",
     [](HistoryBuilder& s) { s.indexes.insert_refused("i", 7, {StatusCode::kAlreadyExists, "another record"}); }},
    {"index-stray-node", [](HistoryBuilder& s) { s.indexes.check_swept("i", 1); }},
    {"index-order",
     [](HistoryBuilder& s) {
       const std::vector<ScannedRow> rows = {{Key(2), HistoryBuilder::seen(10, 2)},
                                             {Key(1), HistoryBuilder::seen(10, 1)}};
       s.indexes.ranged("i", rows);
     }},
    {"intent-left", [](HistoryBuilder& s) { s.oracle.node_checked("node1", "", 2); }},
    {"structure", [](HistoryBuilder& s) { s.oracle.node_checked("node1", "a chain without an end", 0); }},
};

/// All violations, those in transactions first.
std::vector<PlantedViolation> all_planted() {
  const std::span<const PlantedViolation> first = planted_in_transactions();
  std::vector<PlantedViolation> all(first.begin(), first.end());
  all.insert(all.end(), std::begin(kNotInTransactions), std::end(kNotInTransactions));
  return all;
}

class PlantedViolationTest : public ::testing::TestWithParam<PlantedViolation> {};

TEST_P(PlantedViolationTest, IsNamed) {
  HistoryBuilder story;
  GetParam().build(story);
  EXPECT_TRUE(story.oracle.failed());
  EXPECT_EQ(story.oracle.invariant(), GetParam().invariant) << story.oracle.message();
  EXPECT_TRUE(story.oracle.message().starts_with(std::string(GetParam().invariant) + ": ")) << story.oracle.message();
}

INSTANTIATE_TEST_SUITE_P(InvariantsTest, PlantedViolationTest, ::testing::ValuesIn(all_planted()),
                         [](const auto& planted) {
                           std::string name(planted.param.invariant);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + "_" + std::to_string(planted.index);
                         });

TEST(InvariantsTest, EveryInvariantHasPlantedViolationOrIsRaisedBySimulator) {
  const std::vector<std::string_view> elsewhere = {"set-up",   "unreadable",   "unexpected-answer",
                                                   "progress", "livelock",     "quiet",
                                                   "world",    "flushed-lost", "older-log-served"};
  const std::vector<PlantedViolation> all = all_planted();
  for (const Invariant& invariant : invariants()) {
    const bool planted = std::any_of(all.begin(), all.end(),
                                     [&](const PlantedViolation& one) { return one.invariant == invariant.name; });
    const bool other = std::find(elsewhere.begin(), elsewhere.end(), invariant.name) != elsewhere.end();
    EXPECT_NE(planted, other) << invariant.name;
  }
}

}  // namespace
}  // namespace loam::sim
