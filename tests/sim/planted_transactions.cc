// Violations planted in transactions and their scans; invariants_test.cc runs them.
#include <optional>
#include <span>
#include <vector>

#include "tests/sim/oracle.h"
#include "tests/sim/planted_fixture.h"

namespace loam::sim {
namespace {

constexpr PlantedViolation kInTransactions[] = {
    {"dirty-read",
     [](HistoryBuilder& s) {
       s.insert(s.begin(10), 1);
       s.read_in_new_transaction(1, 10);
     }},
    {"abort-visible",
     [](HistoryBuilder& s) {
       const auto writer = s.begin(10);
       s.insert(writer, 1);
       s.end(writer, StatusCode::kConflict);
       s.read_in_new_transaction(1, 10);
     }},
    {"fenced-visible",
     [](HistoryBuilder& s) {
       const auto writer = s.begin(10, HistoryBuilder::kOther);
       s.model.read_failed(writer, StatusCode::kFenced);
       s.insert(writer, 1);
       s.model.commit_called(writer);
       s.read_in_new_transaction(1, 10);
     }},
    {"future-read",
     [](HistoryBuilder& s) {
       const auto reader = s.begin(0);
       s.put(10, {1});
       s.read(reader, 1, 10);
     }},
    {"version-above-id",
     [](HistoryBuilder& s) {
       const auto reader = s.model.begin_called(1, false);
       s.put(11, {1});
       s.model.begun(reader, TransactionId(10));
       s.read(reader, 1, 11);
     }},
    {"unwritten-read", [](HistoryBuilder& s) { s.read_in_new_transaction(1, 10); }},
    {"wrong-value",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.model.read(s.begin(0), {HistoryBuilder::kTable, Key(1)}, {10, 77, 1001}, s.oracle.now());
     }},
    {"own-write-unread",
     [](HistoryBuilder& s) {
       const auto writer = s.begin(10);
       s.insert(writer, 1);
       s.read(writer, 1, 0);
     }},
    {"non-repeatable-read",
     [](HistoryBuilder& s) {
       const auto early = s.begin(0);
       s.read(early, 1, 0);
       s.put(10, {1});
       s.read(early, 1, 10);
     }},
    {"fractured-read",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       const auto writer = s.begin(11);
       s.write(writer, 1);
       s.write(writer, 2);
       s.model.commit_called(writer);
       const auto reader = s.begin(0);  // began during the commit: it may see all of it or nothing, but not a half
       s.read(reader, 1, 11);
       s.read(reader, 2, 10);
     }},
    {"begin-after-ack",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.put(11, {1}, WriteKind::kUpdate);
       s.read_in_new_transaction(1, 10);
     }},
    {"commit-lost",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.read_in_new_transaction(1, 10);
       s.read_in_new_transaction(1, 0);
     }},
    {"half-commit",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       s.crash(11, {1, 2});
       s.read_in_new_transaction(1, 11);
       s.read_in_new_transaction(2, 10);
     }},
    {"outcome-changed",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.read_in_new_transaction(1, 11);
       s.read_in_new_transaction(1, 10);
     }},
    {"outcome-changed",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.decide(10, false);
     }},
    {"outcome-changed",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.read_in_new_transaction(1, 11);
       s.decide(11, false);
     }},
    {"begin-after-ack",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.decide(11, true);
       s.read_in_new_transaction(1, 10);
     }},
    {"abort-visible",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.decide(11, false);
       s.read_in_new_transaction(1, 11);
     }},
    {"log-wrong",
     [](HistoryBuilder& s) {
       s.begin(10);
       s.decide(10, true);
     }},
    {"log-differs",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.model.decided(TransactionId(10), true, false);
     }},
    {"ack-unlogged",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.crash(11, {1});  // no client was told of the commit
       s.put(12, {2});
       s.model.manager_died([](TransactionId id) { return id.value == 10; });
     }},
    {"ack-unlogged",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.crash(11, {1});
       s.read_in_new_transaction(1, 11);
       s.model.manager_died([](TransactionId id) { return id.value == 10; });
     }},
    {"durable-commit-lost",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.put(11, {2});
       s.cut_power(11, 10, false);
     }},
    {"durable-commit-lost",
     [](HistoryBuilder& s) {
       const auto writer = s.begin(10);
       s.insert(writer, 1);
       s.model.commit_called(writer);
       s.cut_power(10, 9, false);  // this is no violation yet
       s.model.commit_returned(writer, StatusCode::kOk);
     }},
    {"durable-commit-lost",
     [](HistoryBuilder& s) {
       s.crash(10, {1}, WriteKind::kInsert);
       const auto reader = s.begin(0);
       s.cut_power(10, 9, false);
       s.read(reader, 1, 10);
     }},
    {"lost-out-of-order",
     [](HistoryBuilder& s) {
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
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.put(11, {1}, WriteKind::kUpdate);
       s.cut_power(11, 10);
       s.read_in_new_transaction(1, 11);
     }},
    {"begin-after-ack",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.put(11, {1}, WriteKind::kUpdate);
       s.put(12, {2});
       s.cut_power(12, 11);
       s.read_in_new_transaction(1, 10);
     }},
    {"fractured-read",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       s.put(11, {1, 2}, WriteKind::kUpdate);
       const auto reader = s.begin(0);  // a snapshot from before the cut: it still contains the commit as a whole
       s.cut_power(11, 10);
       s.read(reader, 1, 11);
       s.read(reader, 2, 10);
     }},
    {"outcome-changed",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.cut_power(10, 9);
       s.decide(10, true);
     }},
    {"commit-over-loss",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       const auto writer = s.begin(11);
       s.write(writer, 2);
       s.lose_odd_keys();
       s.end(writer);
     }},
    {"lost-shard-served",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.oracle.node_lost([](TableId, Key key) { return key == Key(1); });
       s.read_in_new_transaction(2, 0);  // this record is on another node
       s.read_in_new_transaction(1, 0);
     }},
    {"lost-shard-served",
     [](HistoryBuilder& s) {
       s.oracle.node_lost([](TableId, Key key) { return key == Key(1); });
       s.plain_read(1, 0, 0);
     }},
    {"lost-record-returned",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.lose_odd_keys();
       s.read_in_new_transaction(1, 10);
     }},
    {"long-fork",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       const auto first = s.begin(11);
       const auto second = s.begin(12, HistoryBuilder::kOther);
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
     [](HistoryBuilder& s) {
       s.put(10, {1});
       const auto writer = s.begin(11);
       s.write(writer, 1);
       s.model.commit_called(writer);
       const auto early = s.begin(0);
       const auto late = s.begin(0);
       s.read(late, 1, 10);
       s.read(early, 1, 11);  // reported after the later snapshot, which does not contain it
       s.model.commit_returned(writer, StatusCode::kOk);
       s.oracle.final_check();
     }},
    {"id-twice",
     [](HistoryBuilder& s) {
       s.begin(10);
       s.begin(10);
     }},
    {"id-order",
     [](HistoryBuilder& s) {
       s.begin(10);
       s.begin(9);
     }},
    {"lost-update",
     [](HistoryBuilder& s) {
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
     [](HistoryBuilder& s) {
       s.put(10, {1});
       const auto first = s.begin(11);
       const auto second = s.begin(12);
       s.write(first, 1);
       s.write(second, 1);
       s.end(second);
       s.end(first);
     }},
    {"insert-over-record",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       s.put(11, {1});
     }},
    {"update-of-nothing", [](HistoryBuilder& s) { s.put(10, {1}, WriteKind::kUpdate); }},
    {"wrong-refusal",
     [](HistoryBuilder& s) {
       const auto writer = s.begin(10);
       s.read(writer, 1, 0);
       s.insert(writer, 1);
       s.end(writer, StatusCode::kAlreadyExists);
     }},
    {"ack-after-fence",
     [](HistoryBuilder& s) {
       const auto writer = s.begin(10);
       s.model.read_failed(writer, StatusCode::kFenced);
       s.insert(writer, 1);
       s.end(writer);
     }},
    {"scan-exactly-once",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       s.scan(s.begin(0), {{1, 10}, {2, 10}, {1, 10}});
     }},
    {"scan-exactly-once",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       s.scan(s.begin(0), {{1, 10}});
     }},
    {"scan-exactly-once",
     [](HistoryBuilder& s) {
       s.plain_put(1, PlainModel::Kind::kInsert, 0, 1, 50);
       s.plain.scanned(1, HistoryBuilder::kPlainTable, {}, s.oracle.now());
     }},
    {"scan-snapshot",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       s.put(11, {1}, WriteKind::kUpdate);
       s.scan(s.begin(0), {{1, 10}, {2, 10}});
     }},
    {"scan-snapshot",
     [](HistoryBuilder& s) {
       s.put(10, {1});
       const auto reader = s.begin(0);
       s.read(reader, 1, 10);
       s.put(11, {1}, WriteKind::kUpdate);
       s.scan(reader, {{1, 11}});
     }},
    {"scan-sum",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       s.model.expect_constant_sum(HistoryBuilder::kTable, 2, 2'003);
       const auto reader = s.begin(0);
       s.model.summed(reader, HistoryBuilder::kTable, 2, 2'003, s.oracle.now());
       s.model.summed(reader, HistoryBuilder::kTable, 2, 2'002, s.oracle.now());
     }},
    {"scan-sum",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       const auto reader = s.begin(0);
       s.scan(reader, {{1, 10}, {2, 10}});
       s.model.summed(reader, HistoryBuilder::kTable, 1, 1'001, s.oracle.now());
     }},
    {"scan-predicate",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       const auto reader = s.begin(0);
       s.scan(reader, {{1, 10}, {2, 10}});
       const std::vector<ScannedRow> rows = {{Key(1), HistoryBuilder::seen(10, 1)}};
       s.model.selected(reader, HistoryBuilder::kTable, 1'001, rows, s.oracle.now());
     }},
    {"scan-expression",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       const auto reader = s.begin(0);
       s.scan(reader, {{1, 10}, {2, 10}});
       s.model.divided(reader, HistoryBuilder::kTable, 1'001 % TransactionModel::kDivisor, true, s.oracle.now());
       s.model.divided(reader, HistoryBuilder::kTable, 1'000 % TransactionModel::kDivisor, true, s.oracle.now());
     }},
    {"scan-expression",
     [](HistoryBuilder& s) {
       s.put(10, {1, 2});
       const auto reader = s.begin(0);
       s.scan(reader, {{1, 10}, {2, 10}});
       s.model.divided(reader, HistoryBuilder::kTable, 1'002 % TransactionModel::kDivisor, false, s.oracle.now());
     }},
};

}  // namespace

std::span<const PlantedViolation> planted_in_transactions() { return kInTransactions; }

}  // namespace loam::sim
