// Errors planted in transactions and their scans; invariants_test.cc runs them.
#include <optional>
#include <span>
#include <vector>

#include "tests/sim/oracle.h"
#include "tests/sim/planted_fixture.h"

namespace loam::sim {
namespace {

constexpr Planted kInTransactions[] = {
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
       const auto writer = s.begin(10, Story::kOther);
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
       s.model.read(s.begin(0), {Story::kTable, Key(1)}, {10, 77, 1001}, s.oracle.now());
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
       s.decide(10, false);
     }},
    {"outcome-changed",
     [](Story& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.look(1, 11);
       s.decide(11, false);
     }},
    {"begin-after-ack",
     [](Story& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.decide(11, true);
       s.look(1, 10);
     }},
    {"abort-visible",
     [](Story& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.decide(11, false);
       s.look(1, 11);
     }},
    {"log-wrong",
     [](Story& s) {
       s.begin(10);
       s.decide(10, true);
     }},
    {"log-differs",
     [](Story& s) {
       s.put(10, {1});
       s.model.decided(TransactionId(10), true, false);
     }},
    {"ack-unlogged",
     [](Story& s) {
       s.put(10, {1});
       s.crash(11, {1});  // nobody was told
       s.put(12, {2});
       s.model.manager_died([](TransactionId id) { return id.value == 10; });
     }},
    {"ack-unlogged",
     [](Story& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.look(1, 11);
       s.model.manager_died([](TransactionId id) { return id.value == 10; });
     }},
    {"durable-commit-lost",
     [](Story& s) {
       s.put(10, {1});
       s.put(11, {2});
       s.cut_power(11, 10, false);
     }},
    {"durable-commit-lost",
     [](Story& s) {
       const auto writer = s.begin(10);
       s.insert(writer, 1);
       s.model.commit_called(writer);
       s.cut_power(10, 9, false);  // no harm so far
       s.model.commit_returned(writer, StatusCode::kOk);
     }},
    {"durable-commit-lost",
     [](Story& s) {
       s.crash(10, {1}, WriteKind::kInsert);
       const auto reader = s.begin(0);
       s.cut_power(10, 9, false);
       s.read(reader, 1, 10);
     }},
    {"lost-out-of-order",
     [](Story& s) {
       s.put(10, {1});
       s.put(11, {1}, WriteKind::kUpdate);
       const auto writer = s.begin(12);
       s.read(writer, 1, 11);
       s.insert(writer, 2);
       s.end(writer);
       s.model.power_cut([](TransactionId) { return true; }, [](TransactionId id) { return id != TransactionId(11); },
                         true);
     }},
    {"lost-commit-visible",
     [](Story& s) {
       s.put(10, {1});
       s.put(11, {1}, WriteKind::kUpdate);
       s.cut_power(11, 10);
       s.look(1, 11);
     }},
    {"begin-after-ack",
     [](Story& s) {
       s.put(10, {1});
       s.put(11, {1}, WriteKind::kUpdate);
       s.put(12, {2});
       s.cut_power(12, 11);
       s.look(1, 10);
     }},
    {"fractured-read",
     [](Story& s) {
       s.put(10, {1, 2});
       s.put(11, {1, 2}, WriteKind::kUpdate);
       const auto reader = s.begin(0);  // of before: whole as ever
       s.cut_power(11, 10);
       s.read(reader, 1, 11);
       s.read(reader, 2, 10);
     }},
    {"outcome-changed",
     [](Story& s) {
       s.put(10, {1});
       s.cut_power(10, 9);
       s.decide(10, true);
     }},
    {"commit-over-loss",
     [](Story& s) {
       s.put(10, {1, 2});
       const auto writer = s.begin(11);
       s.write(writer, 2);
       s.lose_odd();
       s.end(writer);
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
       const auto second = s.begin(12, Story::kOther);
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
       s.plain_put(1, PlainModel::Kind::kInsert, 0, 1, 50);
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
       s.model.conserve(Story::kTable, 2, 2'003);
       const auto reader = s.begin(0);
       s.model.summed(reader, Story::kTable, 2, 2'003, s.oracle.now());
       s.model.summed(reader, Story::kTable, 2, 2'002, s.oracle.now());
     }},
    {"scan-sum",
     [](Story& s) {
       s.put(10, {1, 2});
       const auto reader = s.begin(0);
       s.scan(reader, {{1, 10}, {2, 10}});
       s.model.summed(reader, Story::kTable, 1, 1'001, s.oracle.now());
     }},
    {"scan-predicate",
     [](Story& s) {
       s.put(10, {1, 2});
       const auto reader = s.begin(0);
       s.scan(reader, {{1, 10}, {2, 10}});
       const std::vector<ScannedRow> rows = {{Key(1), Story::seen(10, 1)}};
       s.model.selected(reader, Story::kTable, 1'001, rows, s.oracle.now());
     }},
};

}  // namespace

std::span<const Planted> planted_in_transactions() { return kInTransactions; }

}  // namespace loam::sim
