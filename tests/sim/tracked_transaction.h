// The public API for the workload: every call and every result is also reported to the oracle.
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
#include "tests/sim/workload_rows.h"

namespace loam::sim {

/// Tells the oracle that open_table or list_tables returned this handle.
void report_opened(Oracle& oracle, const client::Table& table, LogicalTime requested_at);

/// Pause between two attempts at a call that a cluster under faults refuses.
inline constexpr uint64_t kRetryDelayNs = 5'000'000;

/// The state that all fibers of one client process share.
struct ClientProcess {
  client::Client& client;
  Oracle& oracle;
  uint32_t number = 0;
  uint32_t note_bytes = 0;
  uint32_t wide_note_bytes = 0;
  uint64_t max_age_ns = 0;        // largest age of transactions; 0: not judged
  uint32_t tags = 0;              // tags assigned so far
  uint32_t objects = 0;           // Counter objects created so far
  uint32_t begins = 0;            // transactions begun so far that may write
  bool limits_call_time = false;  // some transactions have a deadline for their calls
  uint32_t scopes = 0;            // calls of set_call_deadline so far
  /// Open handles of indexes, and the names of indexes that a fiber is creating (tracked_index.h).
  std::map<std::string, client::Index, std::less<>> indexes{};
  std::set<std::string, std::less<>> creating{};
  bool saw_damaged_index = false;       // a call reported a damaged index
  bool may_meet_stale_manager = false;  // a commit manager that started on an older copy of its folder may answer
  bool repairing = false;
  bool slow_scans = false;
  uint32_t chunks = 0;                          // number of scan chunks that the process has read
  DelegatedWrites* delegated_writes = nullptr;  // the queue that all client processes share; null: there is no queue

  /// True for one in three transactions that may write: it begins as an upgradable one.
  bool next_is_upgradable() { return ++begins % 3 == 0; }
  /// With limits_call_time, gives one in four transactions a timeout of 20 us to 10 ms for its calls.
  void set_call_deadline(std::optional<client::CallScope>& scope) {
    if (!limits_call_time || ++scopes % 4 != 0) return;
    scope.emplace(client::CallOptions{.timeout_ns = uint64_t{20'000} << scopes / 4 % 10});
  }
  uint64_t next_tag() { return uint64_t{number} << 32 | ++tags; }
  /// Whether a cluster with faults may return this status from the call; any other status is a violation.
  bool expected(std::string_view call, const Status& status);
  /// Whether a cluster with faults may return this status from a commit; any other status is a violation. `begun`: the
  /// moment at which the transaction's begin was requested.
  bool expected_commit(const Status& status, const std::set<TableId>& written, LogicalTime begun);
};

/// One transaction. Some of its reads and updates name only some fields; logical times and tags decide which, so that
/// the choices draw no random numbers and change nothing else in a run. Threads: one fiber of its process. Life:
/// within that of its Transaction.
class TrackedTransaction {
 public:
  /// Called after Client::begin(), with the number that begin_called() returned.
  TrackedTransaction(ClientProcess& process, client::Transaction& transaction, TransactionNumber number);

  /// Empty: the read failed, and the transaction cannot continue.
  std::optional<ObservedRecord> get(const client::Table& table, Key key);
  std::vector<std::optional<ObservedRecord>> get_many(const client::Table& table, std::span<const Key> keys);
  /// get_many() by get_async(): requests all records before it waits for the first.
  std::vector<std::optional<ObservedRecord>> get_async_many(const client::Table& table, std::span<const Key> keys);
  std::optional<ObservedRecord> get_for_update(const client::Table& table, Key key);
  /// False: the client refused the write at once.
  bool insert(const client::Table& table, Key key, int64_t value, testing::Random& random);
  /// Some updates name only some fields. If `seen` is the record that this transaction has read, the update may leave
  /// the value as it is; a later read must then return the same value.
  bool update(const client::Table& table, Key key, int64_t value, testing::Random& random,
              const ObservedRecord* seen = nullptr);
  bool remove(const client::Table& table, Key key);
  /// Reads all rows, their sum, or the rows with values of at least `least`, in this transaction's snapshot.
  bool scan(const client::Table& table);
  bool sum(const client::Table& table);
  bool select(const client::Table& table, int64_t least);
  /// Reads all rows by expressions, one of which divides by 0 for values of this remainder
  /// (TransactionModel::kDivisor).
  bool divide(const client::Table& table, int64_t remainder);
  /// scan() and select() by an index whose first field is the value, ascending. The logical time decides whether they
  /// read backward, and whether at once or page by page.
  bool range(const client::Index& index);
  bool range_from(const client::Index& index, int64_t least);
  /// Looks up a record that it has read, by a unique index of the tag; with `for_update` by get_for_update().
  bool find(const client::Index& index, Key key, const ObservedRecord& seen, bool for_update = false);
  /// Sets the values of all records in the range to `value`, or removes them (empty), by an index of the value.
  bool change_range(const client::Index& index, std::pair<int64_t, int64_t> values, std::optional<int64_t> value);
  /// Sets the value of a record that it has read, or removes it (empty), by a unique index of the tag.
  bool change_found(const client::Index& index, Key key, const ObservedRecord& seen, std::optional<int64_t> value);
  bool has_written(TableId table) const { return written_.contains(table); }
  const std::set<TableId>& written() const { return written_; }
  LogicalTime begun() const { return begun_; }

  Status commit();
  /// Aborts by abort(), or by dropping the unfinished transaction, which the caller does next.
  void abort(bool by_call);
  /// For run_transaction(), which commits by itself.
  void commit_called();
  void commit_returned(const Status& status);
  TransactionNumber number() const { return number_; }
  /// The first error of a call, which a body of run_transaction() returns.
  const Status& failure() const { return failure_; }

 private:
  /// Reports the id of an upgradable transaction. Lives during a call in which the transaction may get its id.
  class FirstWrite {
   public:
    explicit FirstWrite(TrackedTransaction& tracked);
    ~FirstWrite();
    FirstWrite(const FirstWrite&) = delete;
    FirstWrite& operator=(const FirstWrite&) = delete;

   private:
    TrackedTransaction& tracked_;
    const bool first_;
    const uint64_t asked_ns_;      // by the clock of the process
    const uint64_t asked_run_ns_;  // the time of the run at the moment of asked_ns_
  };

  std::optional<ObservedRecord> record_read(const client::Table& table, Key key, const Result<client::Record>& record,
                                            LogicalTime requested_at);
  /// The rows of the chunks of a scan in this transaction.
  std::vector<ScannedRow> rows(const std::vector<std::shared_ptr<const Chunk>>& chunks);
  bool write(WriteKind kind, const client::Table& table, Key key, int64_t value, testing::Random* random,
             const ObservedRecord* seen);
  void failed(const client::Table& table, const Status& status, LogicalTime requested_at);
  void failed(const client::Index& index, const Status& status, LogicalTime requested_at);
  bool change(const client::Index& index, const client::IndexRange& range, std::span<const ScannedRow> rows,
              std::optional<int64_t> value);
  bool session_lasts() const { return process_.client.statistics().fenced == session_; }

  ClientProcess& process_;
  client::Transaction& transaction_;
  const TransactionNumber number_;
  std::set<TableId> written_;
  const uint64_t session_;   // number of the client's sessions that had been fenced before
  const LogicalTime begun_;  // a moment before the begin was requested
  uint64_t begun_ns_;        // time before the id was requested
  LogicalTime asked_ = 0;    // moment of the commit request
  uint64_t asked_ns_ = 0;
  Status failure_;
};

/// Runs `body` by Client::run_transaction(). Each attempt is a transaction of its own for the oracle. The transaction
/// is aborted when `body` returns false.
Status run_tracked(ClientProcess& process, const std::function<bool(TrackedTransaction&)>& body);
/// Runs `body` once, by begin() and commit().
Status begin_tracked(ClientProcess& process, bool read_only, const std::function<bool(TrackedTransaction&)>& body);

/// Several scans in one snapshot outside of transactions: all rows and the sum of each table, and one selection.
bool scan_snapshot(ClientProcess& process, std::span<const client::Table> tables, int64_t least);

/// One get. Empty: not answered.
std::optional<ObservedRecord> plain_get(ClientProcess& process, client::PlainTable& table, Key key);
/// One scan of the whole table. False: not answered.
bool plain_scan(ClientProcess& process, const client::Table& table);
Status plain_write(ClientProcess& process, client::PlainTable& table, Key key, PlainModel::Kind kind,
                   uint64_t expected);

}  // namespace loam::sim
