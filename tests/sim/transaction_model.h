// Strong snapshot isolation, judged from what clients did and saw.
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

/// Number of a transaction in the oracle, in the order of their begins.
using TransactionNumber = uint32_t;

enum class WriteKind : uint8_t { kInsert, kUpdate, kRemove, kTouch };
std::string_view to_string(WriteKind kind);

/// How a transaction came by the rows of a table.
enum class Walk : uint8_t { kScan, kIndex };

/// What became of a transaction, as far as anybody was told or has seen.
enum class Outcome : uint8_t {
  kOpen,        ///< its commit was not asked for
  kCommitting,  ///< asked for, no answer yet
  kCommitted,   ///< acknowledged
  kAborted,     ///< its client was told so, or gave up, or crashed before it asked for the commit
  kUnknown,     ///< the client crashed, or was told kUnknownOutcome
};

/// One write of a transaction; a later one of the same record replaces it.
struct Write {
  Place place;
  WriteKind kind{};
  uint64_t tag = 0;  ///< 0 for kRemove
  int64_t value = 0;
  bool seen = false;       ///< by somebody, in this record
  bool of_fields = false;  ///< an update of some fields: the others are those of the record beneath it

  bool leaves_record() const { return kind != WriteKind::kRemove; }
};

/// Records and the sum of their values.
struct Total {
  int64_t count = 0;
  int64_t sum = 0;
  bool operator==(const Total&) const = default;
};

/// One transaction, as told.
struct ModelTransaction {
  TransactionNumber number = 0;
  uint32_t process = 0;
  bool read_only = false;
  bool upgradable = false;  ///< its id is drawn at its first write
  bool begun = false;
  bool fenced = false;  ///< a call of it was answered kFenced
  bool seen = false;    ///< somebody saw a write of it
  Outcome outcome = Outcome::kOpen;
  StatusCode answer = StatusCode::kOk;  ///< of commit
  TransactionId id;
  Moment requested = 0;               ///< before begin was called
  Moment answered = kNever;           ///< begin returned: its snapshot was taken between the two
  Moment asked = kNever;              ///< commit was called
  Moment ended = kNever;              ///< commit returned, abort, crash
  Moment given = kNever;              ///< its id was told
  Moment cut = kNever;                ///< a power cut took its record in the commit log
  Moment visible_by = kNever;         ///< a transaction whose begin is asked for after it must see the writes
  uint64_t id_floor = 0;              ///< the highest id that was given out when it asked for its own
  TransactionNumber begins_then = 0;  ///< transactions begun at that moment
  std::vector<Write> writes;
  std::unordered_map<Place, Seen, PlaceHash> reads;  ///< of other transactions' writes, the first of each record
  std::map<TableId, Total> scanned;                  ///< tables that it has scanned as a whole

  const Write* write_of(Place place) const;
  Write* write_of(Place place);
  bool has_seen(const ModelTransaction& writer) const;
  /// Its writes may be seen by somebody.
  bool may_be_visible() const { return outcome != Outcome::kOpen && outcome != Outcome::kAborted; }
  bool certain() const { return outcome == Outcome::kCommitted || seen; }
  /// A power cut took the commit of `writer` back, and this snapshot may have been taken since then; or must have been.
  bool may_lack(const ModelTransaction& writer) const { return writer.cut != kNever && answered > writer.cut; }
  bool must_lack(const ModelTransaction& writer) const { return writer.cut != kNever && requested > writer.cut; }
};

/// The model of all transactional tables.
///
/// **Power cuts.** With the commit log in mode `os`, the last commits may be gone when the power of the commit
/// manager's host comes back: in order, so that nothing is left that has seen them. A snapshot of before the cut still
/// shows them, until its session is refused. A snapshot of after it shows nothing of them. A begin that was asked for
/// before the cut and answered after it may get either snapshot.
///
/// Owner: the Oracle. Threads: every entry takes the verdict's lock. `requested` and `asked` of operations are moments
/// from Oracle::now() or an entry here.
class TransactionModel {
 public:
  TransactionModel(Verdict& verdict, const Losses& losses, const IndexModel& indexes)
      : verdict_(verdict), losses_(losses), indexes_(indexes) {}

  // ---- one transaction ------------------------------------------------------------------------------------------

  /// Before Client::begin(), or before a scan outside of transactions.
  TransactionNumber begin_called(uint32_t process, bool read_only, bool upgradable = false);
  /// It returned. Id 0 for read-only and upgradable ones.
  void begun(TransactionNumber number, TransactionId id);
  /// Before and after the call of an upgradable transaction that draws its id.
  void id_asked(TransactionNumber number);
  void id_drawn(TransactionNumber number, TransactionId id);
  void begin_failed(TransactionNumber number);

  /// The transaction has buffered a write (the client took it). kTouch: get_for_update, which writes `seen` again.
  void wrote(TransactionNumber number, const Write& write);
  /// A read returned; `asked`: before it was called.
  void read(TransactionNumber number, Place place, const Seen& seen, Moment asked);
  /// All rows of a table by one scan of the transaction's snapshot; or by an index, which has its own writes, too.
  void scanned(TransactionNumber number, TableId table, std::span<const ScannedRow> rows, Moment asked,
               Walk walk = Walk::kScan);
  /// Rows whose values lie between two by an index, with its own writes.
  void ranged(TransactionNumber number, TableId table, std::pair<int64_t, int64_t> values,
              std::span<const ScannedRow> rows, Moment asked, Walk walk);
  /// count(*) and sum(value) of a table by one scan of the snapshot.
  void summed(TransactionNumber number, TableId table, int64_t count, int64_t sum, Moment asked);
  /// Keys that a scan with "value >= least" returned.
  void selected(TransactionNumber number, TableId table, int64_t least, std::span<const ScannedRow> rows, Moment asked);
  /// A scan outside of transactions has ended.
  void scan_ended(TransactionNumber number);
  /// A read or scan failed.
  void read_failed(TransactionNumber number, StatusCode code);

  void commit_called(TransactionNumber number);
  void commit_returned(TransactionNumber number, StatusCode code);
  /// Abort was called, or the transaction was dropped unfinished.
  void aborted(TransactionNumber number);

  // ---- the whole ------------------------------------------------------------------------------------------------

  /// Balances of this table always add up to `sum` over `count` records.
  void conserve(TableId table, int64_t count, int64_t sum);
  /// The creation of an index, which was asked for then, was refused for records that are not unique.
  void index_refused(std::string_view index, TableId table, UniqueBy unique, Moment asked);
  void client_crashed(uint32_t process);
  /// Whether a commit log names the transaction.
  using Named = std::function<bool(TransactionId)>;
  /// The commit manager has died, and this is what its log has when only the process is gone.
  void manager_died(const Named& written);
  /// Its host has lost power, too: the log named the commits in `written` before, and names those in `left` now.
  /// `may_lose`: not every commit that was accepted is on the disk.
  void power_cut(const Named& written, const Named& left, bool may_lose);
  /// Ids that were told to anybody.
  std::vector<TransactionId> ids() const;
  /// When all was at rest: what the commit manager says of a transaction, and whether its log names it on the disk.
  /// From now on that, and nothing else (R4, R8).
  void decided(TransactionId id, bool committed, bool on_disk);
  /// Decides the transactions whose writes no read has seen, and orders everything (order_check.h).
  void final_check();

  /// Before that moment the transaction had not been asked for.
  Moment requested(TransactionNumber number) const;
  /// Keys of a table that anybody has ever tried to write, ascending.
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
  void take_id(ModelTransaction& transaction, TransactionId id);
  friend class OrderCheck;
  /// Writes of one record whose commit was asked for and not known to have failed, by id: the order of versions.
  using Chain = std::map<uint64_t, TransactionNumber>;
  /// How a record was looked at: what names the violation.
  enum class Way : uint8_t { kGet, kScan, kIndex };

  ModelTransaction& at(TransactionNumber number) { return transactions_[number]; }
  void judge_read(ModelTransaction& reader, Place place, const Seen& seen, Moment asked, Way way);
  void judge_own(const ModelTransaction& reader, const Write& own, const Seen& seen);
  /// As one of a walk over the table shows the record, or does not.
  void judge_walked(ModelTransaction& reader, Place place, const Seen& seen, Moment asked, Walk walk);
  void judge_apart(const ModelTransaction& reader, TableId table, std::span<const ScannedRow> rows);
  void judge_repeated(const ModelTransaction& reader, Place place, const Seen& before, const Seen& seen, Way way);
  /// The transaction that wrote what was seen; null if that was a violation.
  ModelTransaction* judge_writer(const ModelTransaction& reader, Place place, const Seen& seen);
  bool judge_writer_state(const ModelTransaction& reader, const ModelTransaction& writer, Place place);
  void judge_newer(const ModelTransaction& reader, Place place, const Seen& seen, Way way);
  void judge_absent(const ModelTransaction& reader, Place place, Way way);
  void judge_whole(const ModelTransaction& reader, const ModelTransaction& writer);
  void judge_gone(const ModelTransaction& writer, Place place, Moment asked);
  void judge_total(const ModelTransaction& reader, TableId table, const Total& found);
  void judge_commit(const ModelTransaction& writer);
  /// Reports the acknowledgement of a commit that must not be acknowledged.
  void judge_acknowledged(const ModelTransaction& writer);
  void judge_refusal(const ModelTransaction& writer);
  /// An index may have refused this write for another record's value; or for another write's.
  bool may_be_taken(const ModelTransaction& writer, const Write& write) const;
  /// The last moment at which a snapshot may have been taken that shows the write; 0: no snapshot shows it.
  Moment last_seen(const ModelTransaction& writer, const Write& write) const;
  /// `next_to`: nothing that may have happened lies between them.
  void judge_neighbours(const ModelTransaction& before, const ModelTransaction& after, Place place, bool next_to);
  void judge_kinds(const ModelTransaction* before, const ModelTransaction& after, Place place);
  /// `reader` does not see what `writer` did to the record, and must.
  void missed(const ModelTransaction& reader, const ModelTransaction& writer, Place place, const Seen& seen, Way way);
  /// A removal that the reader may have seen, of those after `id`: the only one, or null and how many there are.
  std::pair<ModelTransaction*, size_t> removals(const ModelTransaction& reader, Place place, uint64_t id);
  /// The writer is committed, and the reader must see it.
  bool must_see(const ModelTransaction& reader, const ModelTransaction& writer) const;
  void took_place(ModelTransaction& writer, const ModelTransaction& reader, Place place);
  void join_chains(const ModelTransaction& writer);
  void leave_chains(const ModelTransaction& writer);
  bool excused(const ModelTransaction& writer, Place place) const;
  void end(ModelTransaction& transaction, Outcome outcome);
  std::string name(const ModelTransaction& transaction) const;
  void violate(std::string_view invariant, const std::string& text) { verdict_.violate(invariant, text); }

  Verdict& verdict_;
  const Losses& losses_;
  const IndexModel& indexes_;
  std::deque<ModelTransaction> transactions_;
  std::unordered_map<uint64_t, TransactionNumber> by_id_;
  std::unordered_map<uint64_t, TransactionNumber> by_tag_;
  std::unordered_map<Place, Chain, PlaceHash> chains_;
  std::map<TableId, std::set<Key>> keys_;  // ever written
  std::map<TableId, Total> totals_;
  uint64_t highest_id_ = 0;
  bool commits_may_go_ = false;  // by a power cut
  uint64_t begun_ = 0, commits_ = 0, aborts_ = 0, unknown_ = 0, resolved_ = 0, reads_ = 0, scans_ = 0;
};

}  // namespace loam::sim
