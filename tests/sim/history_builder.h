// Short histories for tests of the oracle.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/wire/storage.h"
#include "tests/sim/oracle.h"

namespace loam::sim {

/// Reports short histories to an oracle. A tag is the transaction's id times 100 plus the key; the value equals the
/// tag.
class HistoryBuilder {
 public:
  static constexpr TableId kTable{1024};
  static constexpr TableId kPlainTable{1025};
  static constexpr uint32_t kOther = 2;  // number of a second client process

  Oracle oracle{[] { return uint64_t{1'000'000}; }};
  TransactionModel& model = oracle.transactions();
  PlainModel& plain = oracle.plain();
  TableModel& tables = oracle.tables();
  SessionModel& sessions = oracle.sessions();
  IndexModel& indexes = oracle.indexes();

  TransactionNumber begin(uint64_t id, uint32_t process = 1) {
    const auto number = model.begin_called(process, id == 0);
    model.begun(number, TransactionId(id));
    ids_.resize(std::max<size_t>(ids_.size(), number + 1));
    ids_[number] = id;
    return number;
  }
  static uint64_t tag(uint64_t id, uint64_t key) { return id * 100 + key; }
  static ObservedRecord seen(uint64_t id, uint64_t key) {
    return id == 0 ? ObservedRecord() : ObservedRecord{id, tag(id, key), static_cast<int64_t>(tag(id, key))};
  }
  void write(TransactionNumber number, uint64_t key, WriteKind kind = WriteKind::kUpdate) {
    const bool removes = kind == WriteKind::kRemove;
    const uint64_t written = removes ? 0 : tag(ids_[number], key);
    model.wrote(number, {{kTable, Key(key)}, kind, written, static_cast<int64_t>(written), false});
  }
  void insert(TransactionNumber number, uint64_t key) { write(number, key, WriteKind::kInsert); }
  void remove(TransactionNumber number, uint64_t key) { write(number, key, WriteKind::kRemove); }
  /// The transaction reads the record as transaction `id` wrote it; 0: it reads that there is no record.
  void read(TransactionNumber number, uint64_t key, uint64_t id) {
    model.read(number, {kTable, Key(key)}, seen(id, key), oracle.now());
  }
  void scan(TransactionNumber number, const std::vector<std::pair<uint64_t, uint64_t>>& keys_and_ids) {
    std::vector<ScannedRow> rows;
    for (const auto& [key, id] : keys_and_ids) rows.push_back({Key(key), seen(id, key)});
    model.scanned(number, kTable, rows, oracle.now());
  }
  /// A node receives the request to revert a transaction.
  void request_received(uint32_t node, uint64_t session, uint64_t sequence, TransactionId id) {
    Buffer message;
    wire::encode_message(wire::Revert{id, {}}, sequence, message);
    sessions.request_received({node, "node1"}, SessionId(session), sequence, message);
  }
  void end(TransactionNumber number, StatusCode code = StatusCode::kOk) {
    model.commit_called(number);
    model.commit_returned(number, code);
  }
  /// A transaction writes these keys and commits.
  TransactionNumber put(uint64_t id, const std::vector<uint64_t>& keys, WriteKind kind = WriteKind::kInsert,
                        uint32_t process = 1) {
    const auto number = begin(id, process);
    for (const uint64_t key : keys) write(number, key, kind);
    end(number);
    return number;
  }
  /// A transaction writes these keys, and its client crashes while it commits.
  TransactionNumber crash(uint64_t id, const std::vector<uint64_t>& keys, WriteKind kind = WriteKind::kUpdate) {
    const auto number = begin(id, kOther);
    for (const uint64_t key : keys) write(number, key, kind);
    model.commit_called(number);
    oracle.client_crashed(kOther);
    return number;
  }
  /// At the end of the run, the commit manager and its log report whether the transaction is committed.
  void decide(uint64_t id, bool committed) { model.decided(TransactionId(id), committed, committed); }
  /// The commit manager's host loses power. Before the cut its log named the transactions up to `written`; afterwards
  /// it names those up to `left`.
  void cut_power(uint64_t written, uint64_t left, bool may_lose = true) {
    model.power_cut([written](TransactionId id) { return id.value <= written; },
                    [left](TransactionId id) { return id.value <= left; }, may_lose);
  }
  /// A new transaction reads one record.
  void read_in_new_transaction(uint64_t key, uint64_t id) { read(begin(0), key, id); }

  /// A transaction inserts records that all have the value 7, and commits. equal_value_rows() gives them as rows.
  void insert_equal_values(uint64_t id, const std::vector<uint64_t>& keys) {
    const auto number = begin(id);
    for (const uint64_t key : keys) {
      model.wrote(number, {{kTable, Key(key)}, WriteKind::kInsert, tag(id, key), 7, false});
    }
    end(number);
  }
  static std::vector<ScannedRow> equal_value_rows(uint64_t id, const std::vector<uint64_t>& keys) {
    std::vector<ScannedRow> rows;
    for (const uint64_t key : keys) rows.push_back({Key(key), {id, tag(id, key), 7}});
    return rows;
  }
  /// Creates an index of the table, named "i".
  void index(uint64_t id, UniqueBy unique = UniqueBy::kNothing) {
    const LogicalTime requested_at = oracle.now();
    indexes.create_returned(indexes.create_called("i", kTable, unique), StatusCode::kOk);
    indexes.opened("i", TableId(id), true, requested_at);
  }
  void drop_index() { indexes.drop_returned(indexes.drop_called("i"), StatusCode::kOk); }
  /// The creation of a unique index is refused because records are not unique.
  void refuse_index(UniqueBy unique) {
    const LogicalTime requested_at = oracle.now();
    const size_t create = indexes.create_called("i", kTable, unique);
    model.index_refused("i", kTable, unique, requested_at);
    indexes.create_returned(create, StatusCode::kAlreadyExists);
  }

  void tree_put(const std::string& key, std::optional<uint64_t> tag, StatusCode code = StatusCode::kOk) {
    oracle.trees().change_called(key, tag);
    oracle.trees().change_returned(key, code);
  }
  void tree_read(const std::string& key, std::optional<uint64_t> tag) {
    oracle.trees().found(kOther, key, tag, oracle.now());
  }

  static RecordId place(uint64_t key) { return {kPlainTable, Key(key)}; }
  void plain_put(uint64_t key, PlainModel::Kind kind, uint64_t expected, uint64_t tag, uint64_t version,
                 StatusCode code = StatusCode::kOk, std::optional<int64_t> value = 0) {
    plain.write_returned(plain.write_called(1, place(key), kind, expected, tag, value), code, version);
  }
  void plain_read(uint64_t key, uint64_t version, uint64_t tag, int64_t value = 0) {
    plain.read(1, place(key), {version, tag, value}, oracle.now());
  }
  /// One node owns all records with odd keys. It loses its memory, and the loss is accepted.
  void lose_odd_keys() {
    const size_t loss = oracle.node_lost([](TableId, Key key) { return key.value % 2 == 1; });
    oracle.loss_accepted(loss);
    oracle.loss_acknowledged(loss);
  }

 private:
  std::vector<uint64_t> ids_;
};

}  // namespace loam::sim
