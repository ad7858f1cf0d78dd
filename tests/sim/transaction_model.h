// The oracle's model of transactional tables: judges strong snapshot isolation.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "tests/sim/index_model.h"
#include "tests/sim/losses.h"
#include "tests/sim/verdict.h"

namespace loam::sim {

/// Number of a transaction in the oracle, in the order of begins.
using TransactionNumber = uint32_t;

enum class WriteKind : uint8_t { kInsert, kUpdate, kRemove, kTouch };
std::string_view to_string(WriteKind kind);

/// The access path by which a transaction read the rows of a table.
enum class ScanKind : uint8_t { kScan, kIndex };

/// The outcome of a transaction, as far as any client was told or has observed.
enum class Outcome : uint8_t {
  kOpen,        ///< its commit was not requested
  kCommitting,  ///< commit requested, not answered
  kCommitted,   ///< acknowledged
  kAborted,     ///< its client was told so, aborted it, or crashed before it requested the commit
  kUnknown,     ///< the client crashed while it committed, or was told kUnknownOutcome
};

/// One write of a transaction. A later write of the same record replaces it.
struct Write {
  RecordId place;
  WriteKind kind{};
  uint64_t tag = 0;  ///< 0 for kRemove
  int64_t value = 0;
  bool seen = false;       ///< some transaction has read this write in this record
  bool of_fields = false;  ///< an update of some fields; the other fields keep the values of the previous version

  bool leaves_record() const { return kind != WriteKind::kRemove; }
};

/// Number of records, and the sum of their values.
struct Total {
  int64_t count = 0;
  int64_t sum = 0;
  bool operator==(const Total&) const = default;
};

/// One transaction, as its client reported it.
struct ModelTransaction {
  TransactionNumber number = 0;
  uint32_t process = 0;
  bool read_only = false;
  bool upgradable = false;  ///< gets its id at its first write
  bool begun = false;
  bool fenced = false;  ///< a call of it returned kFenced
  bool seen = false;    ///< some transaction has read a write of it
  Outcome outcome = Outcome::kOpen;
  StatusCode answer = StatusCode::kOk;  ///< result of commit
  TransactionId id;
  LogicalTime requested = 0;              ///< before begin was called
  LogicalTime answered = kNever;          ///< begin returned; the snapshot was taken between `requested` and this
  LogicalTime commit_requested = kNever;  ///< commit was called
  LogicalTime ended = kNever;             ///< commit or abort returned, or the client crashed
  LogicalTime id_assigned = kNever;       ///< its id was reported
  LogicalTime commit_lost = kNever;       ///< a power cut removed its log record
  LogicalTime visible_by = kNever;        ///< a transaction whose begin is requested after this must see the writes
  uint64_t id_floor = 0;                  ///< the highest id that was assigned when it requested its own
  TransactionNumber begins_then = 0;      ///< transactions begun at that moment
  std::vector<Write> writes;
  std::unordered_map<RecordId, ObservedRecord, RecordIdHash>
      reads;                         ///< first read of each record that another transaction wrote
  std::map<TableId, Total> scanned;  ///< tables that it has scanned as a whole

  const Write* write_of(RecordId place) const;
  Write* write_of(RecordId place);
  bool has_seen(const ModelTransaction& writer) const;
  /// Another transaction may see its writes.
  bool may_be_visible() const { return outcome != Outcome::kOpen && outcome != Outcome::kAborted; }
  bool certain() const { return outcome == Outcome::kCommitted || seen; }
  /// A power cut undid the commit of `writer`. may_lack(): this snapshot may have been taken after the cut.
  /// must_lack(): it was certainly taken after the cut.
  bool may_lack(const ModelTransaction& writer) const {
    return writer.commit_lost != kNever && answered > writer.commit_lost;
  }
  bool must_lack(const ModelTransaction& writer) const {
    return writer.commit_lost != kNever && requested > writer.commit_lost;
  }
};

/// The model of all transactional tables.
///
/// **Power cuts.** With the commit log in mode `os`, the newest commits may be gone when the commit manager's host
/// has lost power. They are lost in the order of the log, so that no commit remains that has seen a lost one. A
/// snapshot from before the cut still contains the lost commits, until its session is refused. A snapshot from after
/// the cut contains none of them. A begin that was requested before the cut and answered after it may get either
/// snapshot.
///
/// Owner: the Oracle. Threads: every public function holds the verdict's lock. `requested` and `requested_at` of an
/// operation are moments from Oracle::now() or from a function here.
class TransactionModel {
 public:
  TransactionModel(Verdict& verdict, const Losses& losses, const IndexModel& indexes)
      : verdict_(verdict), losses_(losses), indexes_(indexes) {}

  // ---- one transaction ------------------------------------------------------------------------------------------

  /// Called before Client::begin(), or before a scan outside of transactions. Returns the transaction's number.
  TransactionNumber begin_called(uint32_t process, bool read_only, bool upgradable = false);
  /// begin returned. `id` is 0 for read-only and upgradable transactions.
  void begun(TransactionNumber number, TransactionId id);
  /// Called before and after the call in which an upgradable transaction gets its id.
  void id_requested(TransactionNumber number);
  void id_drawn(TransactionNumber number, TransactionId id);
  void begin_failed(TransactionNumber number);

  /// The client has buffered a write of the transaction. kTouch: get_for_update, which writes the read record again.
  void wrote(TransactionNumber number, const Write& write);
  /// A read returned. `requested_at`: a moment before the call.
  void read(TransactionNumber number, RecordId place, const ObservedRecord& seen, LogicalTime requested_at);
  /// One scan of the transaction's snapshot returned all rows of a table. A scan by an index also returns own writes.
  void scanned(TransactionNumber number, TableId table, std::span<const ScannedRow> rows, LogicalTime requested_at,
               ScanKind walk = ScanKind::kScan);
  /// An index returned the rows whose values lie between two bounds, including own writes.
  void ranged(TransactionNumber number, TableId table, std::pair<int64_t, int64_t> values,
              std::span<const ScannedRow> rows, LogicalTime requested_at, ScanKind walk);
  /// One scan of the snapshot returned count(*) and sum(value) of a table.
  void summed(TransactionNumber number, TableId table, int64_t count, int64_t sum, LogicalTime requested_at);
  /// A scan with "value >= least" returned these rows.
  void selected(TransactionNumber number, TableId table, int64_t least, std::span<const ScannedRow> rows,
                LogicalTime requested_at);
  /// A scan in which values with this remainder of kDivisor are errors has ended with such an error, or without one.
  void divided(TransactionNumber number, TableId table, int64_t remainder, bool error, LogicalTime requested_at);
  static constexpr int64_t kDivisor = 40;
  /// A scan outside of transactions has ended.
  void scan_ended(TransactionNumber number);
  /// A read or scan failed.
  void read_failed(TransactionNumber number, StatusCode code);

  void commit_called(TransactionNumber number);
  void commit_returned(TransactionNumber number, StatusCode code);
  /// abort() was called, or the client dropped the transaction unfinished.
  void aborted(TransactionNumber number);

  // ---- the whole run ----------------------------------------------------------------------------------------------

  /// The balances of this table add up to `sum` over `count` records, until a storage node loses records or a power cut
  /// undoes a transaction that made some of them.
  void expect_constant_sum(TableId table, int64_t count, int64_t sum);
  /// A creation of a unique index that was requested at `requested_at` was refused because records are not unique.
  void index_refused(std::string_view index, TableId table, UniqueBy unique, LogicalTime requested_at);
  void client_crashed(uint32_t process);
  /// Whether a commit log contains the transaction.
  using InCommitLog = std::function<bool(TransactionId)>;
  /// The commit manager's process has died; `written` is the content of its log.
  void manager_died(const InCommitLog& written);
  /// The commit manager's host has lost power: `written` is the content of its log before, `left` the content now.
  /// `may_lose`: the log may have lacked accepted commits that were not flushed.
  void power_cut(const InCommitLog& written, const InCommitLog& left, bool may_lose);
  /// All ids that any client was told.
  std::vector<TransactionId> ids() const;
  /// In a quiescent cluster: the outcome that the commit manager reports for a transaction, and whether the log on
  /// the disk contains it. From now on the transaction has this outcome (R4, outcomes from the commit log; R8,
  /// completion by the owner).
  void decided(TransactionId id, bool committed, bool on_disk);
  /// Decides the outcomes of transactions whose writes no read has seen, and orders everything (order_check.h).
  void final_check();

  /// A moment before the begin of the transaction was requested.
  LogicalTime requested(TransactionNumber number) const;
  /// Keys of the table that any client has tried to write, ascending.
  std::vector<Key> keys(TableId table) const;
  uint64_t begun_count() const { return begun_; }
  uint64_t commits() const { return commits_; }
  uint64_t aborts() const { return aborts_; }
  uint64_t unknown() const { return unknown_; }
  uint64_t resolved() const { return resolved_; }
  uint64_t reads() const { return reads_; }
  uint64_t scans() const { return scans_; }
  const std::deque<ModelTransaction>& all() const { return transactions_; }

 private:
  void register_id(ModelTransaction& transaction, TransactionId id);
  friend class OrderCheck;
  /// The writes of one record whose commits were requested and are not known to have failed, ordered by id: the order
  /// of versions.
  using Chain = std::map<uint64_t, TransactionNumber>;
  /// The access path of a read; it decides the name of the violation.
  enum class AccessPath : uint8_t { kGet, kScan, kIndex };

  ModelTransaction& at(TransactionNumber number) { return transactions_[number]; }
  void check_read(ModelTransaction& reader, RecordId place, const ObservedRecord& seen, LogicalTime requested_at,
                  AccessPath way);
  void check_own_write(const ModelTransaction& reader, const Write& own, const ObservedRecord& seen);
  /// Checks one record of a scan of the whole table, whether the scan returned it or not.
  void check_scanned_row(ModelTransaction& reader, RecordId place, const ObservedRecord& seen, LogicalTime requested_at,
                         ScanKind walk);
  void check_unique(const ModelTransaction& reader, TableId table, std::span<const ScannedRow> rows);
  void check_repeatable(const ModelTransaction& reader, RecordId place, const ObservedRecord& before,
                        const ObservedRecord& seen, AccessPath way);
  /// Returns the transaction that wrote the observed record; null after a violation.
  ModelTransaction* check_writer(const ModelTransaction& reader, RecordId place, const ObservedRecord& seen);
  bool check_writer_state(const ModelTransaction& reader, const ModelTransaction& writer, RecordId place);
  void check_no_newer(const ModelTransaction& reader, RecordId place, const ObservedRecord& seen, AccessPath way);
  void check_absent(const ModelTransaction& reader, RecordId place, AccessPath way);
  void check_atomic(const ModelTransaction& reader, const ModelTransaction& writer);
  void check_not_lost(const ModelTransaction& writer, RecordId place, LogicalTime requested_at);
  void check_total(const ModelTransaction& reader, TableId table, const Total& found);
  void check_commit(const ModelTransaction& writer);
  /// Reports the acknowledgement of a commit that must not be acknowledged.
  void check_acknowledged(const ModelTransaction& writer);
  void check_refusal(const ModelTransaction& writer);
  /// A unique index may have refused this write because of another record's value or another write.
  bool may_violate_unique(const ModelTransaction& writer, const Write& write) const;
  /// The last moment at which a snapshot that contains the write may have been taken; 0: no snapshot contains it.
  LogicalTime last_seen(const ModelTransaction& writer, const Write& write) const;
  /// `next_to`: no write that may have happened lies between the two.
  void check_adjacent_writers(const ModelTransaction& before, const ModelTransaction& after, RecordId place,
                              bool next_to);
  void check_write_kinds(const ModelTransaction* before, const ModelTransaction& after, RecordId place);
  /// `reader` does not see what `writer` did to the record, although it must.
  void report_missed_write(const ModelTransaction& reader, const ModelTransaction& writer, RecordId place,
                           const ObservedRecord& seen, AccessPath way);
  /// Counts the removals after `id` that the reader may have seen. Returns the removal itself if there is exactly
  /// one, otherwise null, and the number.
  std::pair<ModelTransaction*, size_t> removals(const ModelTransaction& reader, RecordId place, uint64_t id);
  /// The writer is committed, and the reader must see it.
  bool must_see(const ModelTransaction& reader, const ModelTransaction& writer) const;
  void mark_observed(ModelTransaction& writer, const ModelTransaction& reader, RecordId place);
  void join_chains(const ModelTransaction& writer);
  void leave_chains(const ModelTransaction& writer);
  bool excused(const ModelTransaction& writer, RecordId place) const;
  void end(ModelTransaction& transaction, Outcome outcome);
  std::string name(const ModelTransaction& transaction) const;
  void violate(std::string_view invariant, const std::string& text) { verdict_.violate(invariant, text); }

  Verdict& verdict_;
  const Losses& losses_;
  const IndexModel& indexes_;
  std::deque<ModelTransaction> transactions_;
  std::unordered_map<uint64_t, TransactionNumber> by_id_;
  std::unordered_map<uint64_t, TransactionNumber> by_tag_;
  std::unordered_map<RecordId, Chain, RecordIdHash> chains_;
  std::map<TableId, std::set<Key>> keys_;  // keys that any client has tried to write
  /// A total that every snapshot shows, because its records were made by transactions before `made_before`, and all
  /// later ones keep it.
  struct ConstantTotal {
    Total total;
    TransactionNumber made_before = 0;
  };
  std::map<TableId, ConstantTotal> totals_;
  uint64_t highest_id_ = 0;
  bool commits_may_go_ = false;  // a power cut may undo commits
  uint64_t begun_ = 0, commits_ = 0, aborts_ = 0, unknown_ = 0, resolved_ = 0, reads_ = 0, scans_ = 0;
};

}  // namespace loam::sim
