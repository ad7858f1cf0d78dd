// A client fiber's hands: the public API, with everything that is done and seen told to the oracle.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <loam/client/client.h>

#include "common/testing/random.h"
#include "tests/sim/oracle.h"
#include "tests/sim/workload.h"

namespace loam::sim {

/// Fields of every table of the workload.
struct RowFields {
  static constexpr uint16_t kTag = 0;    ///< int64: unique in the run
  static constexpr uint16_t kValue = 1;  ///< int64
  static constexpr uint16_t kNote = 2;   ///< text, NULL allowed
};
const Schema& row_schema();
/// The same with one field more, for those who create a table otherwise than others.
const Schema& other_schema();

/// Between two attempts at what a cluster that is in trouble refuses.
inline constexpr uint64_t kAgainNs = 5'000'000;

/// What all fibers of one client process share.
struct Process {
  client::Client& client;
  Oracle& oracle;
  uint32_t number = 0;
  uint32_t note_bytes = 0;
  uint32_t wide_note_bytes = 0;
  uint64_t max_age_ns = 0;  // of transactions; 0: not judged
  uint32_t tags = 0;        // given out
  uint32_t objects = 0;     // counters made
  uint32_t begins = 0;      // of transactions that may write
  bool cuts_calls = false;  // some transactions have a time after which their calls end
  uint32_t scopes = 0;      // asked for
  /// Indexes as they were opened, and those that a fiber creates just now (index_actor.h).
  std::map<std::string, client::Index, std::less<>> indexes{};
  std::set<std::string, std::less<>> creating{};
  bool met_damage = false;    // of some index
  bool older_folder = false;  // a commit manager on an older folder may answer
  bool mending = false;
  bool slow_scans = false;
  uint32_t chunks = 0;         // number of scan chunks that the process has read
  Errands* errands = nullptr;  // the queue that all client processes share; null: there is no queue

  /// One in three transactions that may write is upgradable.
  bool draws_id_late() { return ++begins % 3 == 0; }
  /// With cuts_calls: one in four transactions has a time, 20 us to 10 ms, after which its calls end.
  void bound(std::optional<client::CallScope>& scope) {
    if (!cuts_calls || ++scopes % 4 != 0) return;
    scope.emplace(client::CallOptions{.timeout_ns = uint64_t{20'000} << scopes / 4 % 10});
  }
  uint64_t next_tag() { return uint64_t{number} << 32 | ++tags; }
  /// An answer that this call may have in a cluster with faults; anything else is a violation.
  bool expected(std::string_view call, const Status& status);
  /// Whether a commit may have this answer in a cluster with faults; anything else is a violation. `begun`: the moment
  /// when the transaction's begin was asked for.
  bool expected_commit(const Status& status, const std::set<TableId>& written, Moment begun);
};

/// One transaction. A part of its reads and updates is of some fields only; which, the moments and tags decide, so that
/// a choice more or less changes nothing else in a run. Of a fiber of its process, not after the end of its
/// Transaction.
class Tracked {
 public:
  /// After Client::begin() for what begin_called() gave.
  Tracked(Process& process, client::Transaction& transaction, TransactionNumber number);

  /// Nothing: not answered; the transaction cannot go on.
  std::optional<Seen> get(const client::Table& table, Key key);
  std::vector<std::optional<Seen>> get_many(const client::Table& table, std::span<const Key> keys);
  /// The same by get_async(): all are asked for before the first is waited for.
  std::vector<std::optional<Seen>> get_at_once(const client::Table& table, std::span<const Key> keys);
  std::optional<Seen> get_for_update(const client::Table& table, Key key);
  /// False: refused at once.
  bool insert(const client::Table& table, Key key, int64_t value, testing::Random& random);
  /// Some updates name some fields only. With `seen`, what this transaction has read of the record, the value may be
  /// one that stays: then it must come out as it was.
  bool update(const client::Table& table, Key key, int64_t value, testing::Random& random, const Seen* seen = nullptr);
  bool remove(const client::Table& table, Key key);
  /// All rows, their sum or those from `least` on, in this transaction's snapshot.
  bool scan(const client::Table& table);
  bool sum(const client::Table& table);
  bool select(const client::Table& table, int64_t least);
  /// The same as scan() and select() by an index whose first field is the value, rising. The moment decides whether
  /// backward, and whether at once or page by page.
  bool range(const client::Index& index);
  bool range_from(const client::Index& index, int64_t least);
  /// What it has seen of a record by get(), by a unique index of the tag; also by get_for_update().
  bool find(const client::Index& index, Key key, const Seen& seen, bool for_update = false);
  /// Gives all records of these values another one, or removes them (no value), by an index of the value.
  bool change_range(const client::Index& index, std::pair<int64_t, int64_t> values, std::optional<int64_t> value);
  /// Gives the record that it has seen another value, or removes it (no value), by a unique index of the tag.
  bool change_found(const client::Index& index, Key key, const Seen& seen, std::optional<int64_t> value);
  bool has_written(TableId table) const { return written_.contains(table); }
  const std::set<TableId>& written() const { return written_; }
  Moment begun() const { return begun_; }

  Status commit();
  /// By abort(), or by leaving the transaction unfinished to its end, which is near.
  void abort(bool by_call);
  /// For run_transaction(), which commits by itself.
  void commit_called();
  void commit_returned(const Status& status);
  TransactionNumber number() const { return number_; }
  /// The first error of a call, that a body of run_transaction() returns.
  const Status& failure() const { return failure_; }

 private:
  /// Lives during a call that may draw the id of an upgradable transaction.
  class FirstWrite {
   public:
    explicit FirstWrite(Tracked& tracked);
    ~FirstWrite();
    FirstWrite(const FirstWrite&) = delete;
    FirstWrite& operator=(const FirstWrite&) = delete;

   private:
    Tracked& tracked_;
    const bool first_;
    const uint64_t asked_ns_;
  };

  std::optional<Seen> told(const client::Table& table, Key key, const Result<client::Record>& record, Moment asked);
  bool write(WriteKind kind, const client::Table& table, Key key, int64_t value, testing::Random* random,
             const Seen* seen);
  void failed(const client::Table& table, const Status& status, Moment asked);
  void failed(const client::Index& index, const Status& status, Moment asked);
  bool change(const client::Index& index, const client::IndexRange& range, std::span<const ScannedRow> rows,
              std::optional<int64_t> value);
  bool session_lasts() const { return process_.client.statistics().fenced == session_; }

  Process& process_;
  client::Transaction& transaction_;
  const TransactionNumber number_;
  std::set<TableId> written_;
  const uint64_t session_;  // how many of the client's had been fenced before
  const Moment begun_;      // before that the begin was asked for
  uint64_t begun_ns_;       // before that its id was asked for
  Moment asked_ = 0;        // for the commit
  uint64_t asked_ns_ = 0;
  Status failure_;
};

/// Runs `body` by Client::run_transaction(); each attempt is a transaction of the oracle's. The body is given up when
/// it returns false.
Status run_tracked(Process& process, const std::function<bool(Tracked&)>& body);
/// The same by begin() and commit(), once.
Status begin_tracked(Process& process, bool read_only, const std::function<bool(Tracked&)>& body);

/// Several scans in one snapshot, outside of transactions: all rows and the sum of each table, and a selection.
bool scan_snapshot(Process& process, std::span<const client::Table> tables, int64_t least);

/// One get; one write. Nothing: not answered.
std::optional<Seen> plain_get(Process& process, client::PlainTable& table, Key key);
/// One scan of the whole table.
bool plain_scan(Process& process, const client::Table& table);
Status plain_write(Process& process, client::PlainTable& table, Key key, PlainModel::Kind kind, uint64_t expected);

/// Rows of a projection of (tag, value) with key and version.
std::vector<ScannedRow> rows_of(const std::vector<std::shared_ptr<const Chunk>>& chunks);

}  // namespace loam::sim
