// Each kind of error is planted in a history that is right but for it, and the oracle must name exactly that.
#include "tests/sim/invariants.h"

#include <algorithm>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/oracle.h"
#include "tests/sim/story.h"

namespace loam::sim {
namespace {

constexpr TableId kTable = Story::kTable;
constexpr uint32_t kOther = Story::kOther;

struct Planted {
  std::string_view invariant;
  void (*tell)(Story&);
};

/// For the test's name.
void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.invariant; }

using Kind = PlainModel::Kind;

const Planted kPlanted[] = {
    {"dirty-read",
     [](Story& s) {
       s.insert(s.begin(10), 1);
       s.look(1, 10);
     }},
    {"abort-visible",
     [](Story& s) {
       const auto writer = s.begin(10);
       s.insert(writer, 1);
       s.end(writer, StatusCode::kConflict);
       s.look(1, 10);
     }},
    {"fenced-visible",
     [](Story& s) {
       const auto writer = s.begin(10, kOther);
       s.model.read_failed(writer, StatusCode::kFenced);
       s.insert(writer, 1);
       s.model.commit_called(writer);
       s.look(1, 10);
     }},
    {"future-read",
     [](Story& s) {
       const auto reader = s.begin(0);
       s.put(10, {1});
       s.read(reader, 1, 10);
     }},
    {"version-above-id",
     [](Story& s) {
       const auto reader_asked = s.model.begin_called(1, false);
       s.put(11, {1});
       s.model.begun(reader_asked, TransactionId(10));
       s.read(reader_asked, 1, 11);
     }},
    {"unwritten-read", [](Story& s) { s.look(1, 10); }},
    {"wrong-value",
     [](Story& s) {
       s.put(10, {1});
       s.model.read(s.begin(0), {kTable, Key(1)}, {10, 77, 1001}, s.oracle.now());
     }},
    {"own-write-unread",
     [](Story& s) {
       const auto writer = s.begin(10);
       s.insert(writer, 1);
       s.read(writer, 1, 0);
     }},
    {"non-repeatable-read",
     [](Story& s) {
       const auto early = s.begin(0);
       s.read(early, 1, 0);
       s.put(10, {1});
       s.read(early, 1, 10);
     }},
    {"fractured-read",
     [](Story& s) {
       s.put(10, {1, 2});
       const auto writer = s.begin(11);
       s.write(writer, 1);
       s.write(writer, 2);
       s.model.commit_called(writer);
       const auto reader = s.begin(0);  // begun while it commits: either is right, half is not
       s.read(reader, 1, 11);
       s.read(reader, 2, 10);
     }},
    {"begin-after-ack",
     [](Story& s) {
       s.put(10, {1});
       s.put(11, {1}, WriteKind::kUpdate);
       s.look(1, 10);
     }},
    {"commit-lost",
     [](Story& s) {
       s.put(10, {1});
       s.look(1, 10);
       s.look(1, 0);
     }},
    {"half-commit",
     [](Story& s) {
       s.put(10, {1, 2});
       s.crash(11, {1, 2});
       s.look(1, 11);
       s.look(2, 10);
     }},
    {"outcome-changed",
     [](Story& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.look(1, 11);
       s.look(1, 10);
     }},
    {"outcome-changed",
     [](Story& s) {
       s.put(10, {1});
       s.oracle.transactions().recovered(TransactionId(10), false);
     }},
    {"outcome-changed",
     [](Story& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.look(1, 11);
       s.oracle.transactions().recovered(TransactionId(11), false);
     }},
    {"begin-after-ack",
     [](Story& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.oracle.transactions().recovered(TransactionId(11), true);
       s.look(1, 10);
     }},
    {"abort-visible",
     [](Story& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.oracle.transactions().recovered(TransactionId(11), false);
       s.look(1, 11);
     }},
    {"lost-shard-served",
     [](Story& s) {
       s.put(10, {1});
       s.oracle.node_lost([](TableId, Key key) { return key == Key(1); });
       s.look(2, 0);  // lies elsewhere
       s.look(1, 0);
     }},
    {"lost-shard-served",
     [](Story& s) {
       s.oracle.node_lost([](TableId, Key key) { return key == Key(1); });
       s.plain_look(1, 0, 0);
     }},
    {"lost-record-returned",
     [](Story& s) {
       s.put(10, {1});
       s.lose_odd();
       s.look(1, 10);
     }},
    {"long-fork",
     [](Story& s) {
       s.put(10, {1, 2});
       const auto first = s.begin(11);
       const auto second = s.begin(12, kOther);
       s.write(first, 1);
       s.write(second, 2);
       s.model.commit_called(first);
       s.model.commit_called(second);
       const auto one = s.model.begin_called(1, true);
       const auto two = s.model.begin_called(1, true);
       s.model.begun(one, TransactionId());
       s.model.begun(two, TransactionId());
       s.read(one, 1, 11);
       s.read(one, 2, 10);
       s.read(two, 1, 10);
       s.read(two, 2, 12);
       s.model.commit_returned(first, StatusCode::kOk);
       s.model.commit_returned(second, StatusCode::kOk);
       s.oracle.final_check();
     }},
    {"snapshot-order",
     [](Story& s) {
       s.put(10, {1});
       const auto writer = s.begin(11);
       s.write(writer, 1);
       s.model.commit_called(writer);
       const auto early = s.begin(0);
       const auto late = s.begin(0);
       s.read(late, 1, 10);
       s.read(early, 1, 11);  // told after the later snapshot, which does not hold it
       s.model.commit_returned(writer, StatusCode::kOk);
       s.oracle.final_check();
     }},
    {"id-twice",
     [](Story& s) {
       s.begin(10);
       s.begin(10);
     }},
    {"id-order",
     [](Story& s) {
       s.begin(10);
       s.begin(9);
     }},
    {"lost-update",
     [](Story& s) {
       s.put(10, {1});
       const auto first = s.begin(11);
       const auto second = s.begin(12);
       for (const auto writer : {first, second}) {
         s.read(writer, 1, 10);
         s.write(writer, 1);
       }
       s.end(first);
       s.end(second);
     }},
    {"conflict-missed",
     [](Story& s) {
       s.put(10, {1});
       const auto first = s.begin(11);
       const auto second = s.begin(12);
       s.write(first, 1);
       s.write(second, 1);
       s.end(second);
       s.end(first);
     }},
    {"insert-over-record",
     [](Story& s) {
       s.put(10, {1});
       s.put(11, {1});
     }},
    {"update-of-nothing", [](Story& s) { s.put(10, {1}, WriteKind::kUpdate); }},
    {"wrong-refusal",
     [](Story& s) {
       const auto writer = s.begin(10);
       s.read(writer, 1, 0);
       s.insert(writer, 1);
       s.end(writer, StatusCode::kAlreadyExists);
     }},
    {"ack-after-fence",
     [](Story& s) {
       const auto writer = s.begin(10);
       s.model.read_failed(writer, StatusCode::kFenced);
       s.insert(writer, 1);
       s.end(writer);
     }},
    {"scan-exactly-once",
     [](Story& s) {
       s.put(10, {1, 2});
       s.scan(s.begin(0), {{1, 10}, {2, 10}, {1, 10}});
     }},
    {"scan-exactly-once",
     [](Story& s) {
       s.put(10, {1, 2});
       s.scan(s.begin(0), {{1, 10}});
     }},
    {"scan-exactly-once",
     [](Story& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain.scanned(1, Story::kPlainTable, {}, s.oracle.now());
     }},
    {"scan-snapshot",
     [](Story& s) {
       s.put(10, {1, 2});
       s.put(11, {1}, WriteKind::kUpdate);
       s.scan(s.begin(0), {{1, 10}, {2, 10}});
     }},
    {"scan-snapshot",
     [](Story& s) {
       s.put(10, {1});
       const auto reader = s.begin(0);
       s.read(reader, 1, 10);
       s.put(11, {1}, WriteKind::kUpdate);
       s.scan(reader, {{1, 11}});
     }},
    {"scan-sum",
     [](Story& s) {
       s.put(10, {1, 2});
       s.model.conserve(kTable, 2, 2'003);
       const auto reader = s.begin(0);
       s.model.summed(reader, kTable, 2, 2'003, s.oracle.now());
       s.model.summed(reader, kTable, 2, 2'002, s.oracle.now());
     }},
    {"scan-sum",
     [](Story& s) {
       s.put(10, {1, 2});
       const auto reader = s.begin(0);
       s.scan(reader, {{1, 10}, {2, 10}});
       s.model.summed(reader, kTable, 1, 1'001, s.oracle.now());
     }},
    {"scan-predicate",
     [](Story& s) {
       s.put(10, {1, 2});
       const auto reader = s.begin(0);
       s.scan(reader, {{1, 10}, {2, 10}});
       const std::vector<ScannedRow> rows = {{Key(1), Story::seen(10, 1)}};
       s.model.selected(reader, kTable, 1'001, rows, s.oracle.now());
     }},
    {"plain-version-returned",
     [](Story& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_put(1, Kind::kUpdate, 50, 2, 50);
     }},
    {"plain-lost-update",
     [](Story& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_put(1, Kind::kUpdate, 50, 2, 51);
       s.plain_put(1, Kind::kUpdate, 50, 3, 52);
     }},
    {"plain-lost-update",
     [](Story& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_put(1, Kind::kInsert, 0, 2, 51);
     }},
    {"plain-applied-twice",
     [](Story& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_look(1, 51, 1);
     }},
    {"plain-refused-visible",
     [](Story& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 0, StatusCode::kAlreadyExists);
       s.plain_look(1, 50, 1);
     }},
    {"plain-stale-read",
     [](Story& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_put(1, Kind::kUpdate, 50, 2, 51);
       s.plain_look(1, 50, 1);
     }},
    {"plain-write-lost",
     [](Story& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_look(1, 0, 0);
     }},
    {"plain-unwritten-read", [](Story& s) { s.plain_look(1, 50, 1); }},
    {"plain-wrong-value",
     [](Story& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50, StatusCode::kOk, 7);
       s.plain_put(1, Kind::kUpdate, 50, 2, 51, StatusCode::kOk, std::nullopt);
       s.plain_look(1, 51, 2, 8);
     }},
    {"plain-wrong-refusal",
     [](Story& s) {
       s.plain_put(1, Kind::kInsert, 0, 1, 50);
       s.plain_put(1, Kind::kUpdate, 50, 2, 0, StatusCode::kConflict);
     }},
    {"counter-twice",
     [](Story& s) {
       s.oracle.counters().drew(1, "c", 7);
       s.oracle.counters().drew(2, "c", 7);
     }},
    {"counter-order",
     [](Story& s) {
       s.oracle.counters().drew(1, "c", 7);
       s.oracle.counters().drew(1, "c", 6);
     }},
    {"create-twice",
     [](Story& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.created("t", TableId(2001), "(a)", "(a)", s.oracle.now());
     }},
    {"create-schema", [](Story& s) { s.tables.created("t", TableId(2000), "(b)", "(a)", s.oracle.now()); }},
    {"create-refused",
     [](Story& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.create_refused("t", "(a)", s.oracle.now());
     }},
    {"table-id-twice",
     [](Story& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.created("u", TableId(2000), "(a)", "(a)", s.oracle.now());
     }},
    {"table-lost",
     [](Story& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.refused(TableId(2000), s.oracle.now());
     }},
    {"table-lost",
     [](Story& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.listed(s.oracle.now());
     }},
    {"dropped-table-read",
     [](Story& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.drop_returned(s.tables.drop_called("t"), StatusCode::kOk);
       s.tables.served(TableId(2000), s.oracle.now());
     }},
    {"dropped-table-read",
     [](Story& s) {
       s.tables.created("t", TableId(2000), "(a)", "(a)", s.oracle.now());
       s.tables.drop_called("t");  // its client crashed
       s.tables.refused(TableId(2000), s.oracle.now());
       s.tables.opened("t", TableId(2000), "(a)", s.oracle.now());
     }},
    {"over-age", [](Story& s) { s.sessions.committed_after(1, TransactionId(10), 151'000'000, 100'000'000); }},
    {"snapshot-refused",
     [](Story& s) {
       s.sessions.too_old(1, 3);
       s.sessions.committed(1, 3, s.oracle.now());
     }},
    {"idle-session-ended",
     [](Story& s) {
       s.sessions.idled(1, 100'000'000, false);
       s.sessions.idled(1, 100'000'000, true);
     }},
    {"tree-lost-key",
     [](Story& s) {
       s.tree_put("k", 1);
       s.tree_look("k", std::nullopt);
     }},
    {"tree-lost-key",
     [](Story& s) {
       s.tree_put("k", 1);
       s.tree_put("l", 2);
       const std::vector<TreeModel::SeenEntry> entries = {{"k", 1}};
       s.oracle.trees().walked(1, "a", "", entries, s.oracle.now());
     }},
    {"tree-phantom",
     [](Story& s) {
       s.tree_put("k", 1);
       s.tree_put("k", std::nullopt);
       s.tree_look("k", 1);
     }},
    {"tree-phantom", [](Story& s) { s.tree_look("k", 7); }},
    {"tree-phantom",
     [](Story& s) {
       const std::vector<TreeModel::SeenEntry> entries = {{"k", 7}};
       s.oracle.trees().walked(1, "a", "", entries, s.oracle.now());
     }},
    {"tree-answer",
     [](Story& s) {
       s.tree_put("k", 1);
       s.tree_put("k", std::nullopt, StatusCode::kNotFound);
     }},
    {"tree-answer", [](Story& s) { s.tree_put("k", 1, StatusCode::kAlreadyExists); }},
    {"tree-order",
     [](Story& s) {
       s.tree_put("k", 1);
       const std::vector<TreeModel::SeenEntry> entries = {{"k", 1}, {"k", 1}};
       s.oracle.trees().walked(1, "", "", entries, s.oracle.now());
     }},
    {"tree-structure", [](Story& s) { s.oracle.trees().checked("a node with two parents"); }},
    {"index-unique",
     [](Story& s) {
       s.index(900, UniqueBy::kValue);
       s.same(10, {1, 2});
       s.model.scanned(s.begin(0), kTable, s.same_rows(10, {1, 2}), s.oracle.now());
     }},
    {"index-unique",
     [](Story& s) {
       s.index(900, UniqueBy::kValue);
       s.drop_index();
       s.index(901, UniqueBy::kValue);
       s.same(10, {1, 2});
       s.model.scanned(s.begin(0), kTable, s.same_rows(10, {1, 2}), s.oracle.now());
     }},
    {"index-damaged",
     [](Story& s) {
       s.index(900);
       s.indexes.malformed("i", s.oracle.now());
     }},
    {"index-damaged",
     [](Story& s) {
       s.index(900);
       s.lose_odd();
       s.drop_index();
       s.index(901);
       s.indexes.malformed("i", s.oracle.now());
     }},
    {"index-damaged",
     [](Story& s) {
       s.index(900);
       s.indexes.malformed_commit(std::vector{kTable}, s.oracle.now());
     }},
    {"index-undamaged",
     [](Story& s) {
       s.index(900);
       s.lose_odd();
       s.indexes.read(TableId(900), s.oracle.now());
     }},
    {"index-undamaged",
     [](Story& s) {
       s.index(900);
       s.lose_odd(), s.index(900);  // still ready
     }},
    {"index-gone",
     [](Story& s) {
       s.index(900);
       s.indexes.absent("i", s.oracle.now());
     }},
    {"index-gone",
     [](Story& s) {
       s.index(900);
       s.drop_index();
       s.index(901);
       s.indexes.refused(TableId(901), s.oracle.now());
     }},
    {"index-gone",
     [](Story& s) {
       s.index(900);
       s.index(901);
     }},
    {"index-refused",
     [](Story& s) {
       s.put(10, {1, 2});
       s.refuse_index(UniqueBy::kValue);
     }},
    {"index-refused",
     [](Story& s) {
       s.same(10, {1, 2});
       s.put(11, {2}, WriteKind::kUpdate);
       s.refuse_index(UniqueBy::kValue);
     }},
    {"index-refused",
     [](Story& s) {
       s.same(10, {1, 2});
       s.refuse_index(UniqueBy::kTag);
     }},
    {"index-hits", [](Story& s) { s.indexes.hit("i", TransactionId(10), 1, 2, s.oracle.now()); }},
    {"wrong-refusal",
     [](Story& s) {
       s.index(900, UniqueBy::kValue);
       s.put(10, {1, 2});
       const auto writer = s.begin(11);
       s.read(writer, 1, 10);
       s.write(writer, 1);
       s.end(writer, StatusCode::kAlreadyExists);
     }},
    {"scan-exactly-once",
     [](Story& s) {
       s.put(10, {1, 2});
       const auto reader = s.begin(0);
       s.scan(reader, {{1, 10}, {2, 10}});
       const std::vector<ScannedRow> rows = {{Key(1), Story::seen(10, 1)}};
       s.model.ranged(reader, kTable, {0, 9'999}, rows, s.oracle.now(), Walk::kIndex);
     }},
    {"scan-predicate",
     [](Story& s) {
       s.put(10, {1});
       const std::vector<ScannedRow> rows = {{Key(1), Story::seen(10, 1)}};
       s.model.ranged(s.begin(0), kTable, {0, 9}, rows, s.oracle.now(), Walk::kIndex);
     }},
    {"own-write-unread",
     [](Story& s) {
       const auto writer = s.begin(10);
       s.insert(writer, 1);
       s.model.scanned(writer, kTable, {}, s.oracle.now(), Walk::kIndex);
     }},
    {"index-phantom", [](Story& s) { s.indexes.at_rest("i", {{"a", Key(1)}, {"b", Key(1)}}, {{"b", Key(1)}}); }},
    {"index-lost-key", [](Story& s) { s.indexes.at_rest("i", {{"a", Key(1)}}, {{"a", Key(1)}, {"a", Key(2)}}); }},
    {"index-lost-key",
     [](Story& s) { s.indexes.found("i", TransactionId(10), {kTable, Key(1)}, Story::seen(9, 1), std::nullopt); }},
    {"index-lost-key",
     [](Story& s) { s.indexes.found("i", TransactionId(10), {kTable, Key(1)}, Story::seen(9, 1), Key(2)); }},
    {"index-blocked", [](Story& s) { s.indexes.blocked("i", 7, {StatusCode::kAlreadyExists, "another record"}); }},
    {"index-stray-node", [](Story& s) { s.indexes.swept("i", 1); }},
    {"index-order",
     [](Story& s) {
       const std::vector<ScannedRow> rows = {{Key(2), Story::seen(10, 2)}, {Key(1), Story::seen(10, 1)}};
       s.indexes.ranged("i", rows);
     }},
    {"undo-left", [](Story& s) { s.oracle.node_checked("node1", "", 2); }},
    {"structure", [](Story& s) { s.oracle.node_checked("node1", "a chain without an end", 0); }},
};

class PlantedTest : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedTest, IsNamed) {
  Story story;
  GetParam().tell(story);
  EXPECT_TRUE(story.oracle.failed());
  EXPECT_EQ(story.oracle.invariant(), GetParam().invariant) << story.oracle.message();
  EXPECT_TRUE(story.oracle.message().starts_with(std::string(GetParam().invariant) + ": ")) << story.oracle.message();
}

INSTANTIATE_TEST_SUITE_P(InvariantsTest, PlantedTest, ::testing::ValuesIn(kPlanted), [](const auto& planted) {
  std::string name(planted.param.invariant);
  std::replace(name.begin(), name.end(), '-', '_');
  return name + "_" + std::to_string(planted.index);
});

TEST(InvariantsTest, EveryInvariantIsPlantedOrOfTheWorld) {
  const std::vector<std::string_view> elsewhere = {"set-up", "unreadable", "unexpected-answer", "progress", "livelock",
                                                   "quiet",  "world"};
  for (const Invariant& invariant : invariants()) {
    const bool planted = std::any_of(std::begin(kPlanted), std::end(kPlanted),
                                     [&](const Planted& one) { return one.invariant == invariant.name; });
    const bool other = std::find(elsewhere.begin(), elsewhere.end(), invariant.name) != elsewhere.end();
    EXPECT_NE(planted, other) << invariant.name;
  }
}

}  // namespace
}  // namespace loam::sim
