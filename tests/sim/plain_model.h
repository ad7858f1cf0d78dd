// The oracle's models of non-transactional tables and of counters.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "tests/sim/losses.h"
#include "tests/sim/verdict.h"

namespace loam::sim {

/// The model of the non-transactional tables (R21, exact-version writes). Each record is a register. Every write
/// names the version that it replaces, so the states of a register form a chain and the check needs no search.
///
/// Owner: the Oracle. Threads: every public function holds the verdict's lock.
class PlainModel {
 public:
  enum class Kind : uint8_t { kInsert, kUpdate, kRemove };
  using WriteNumber = uint32_t;

  PlainModel(Verdict& verdict, const Losses& losses) : verdict_(verdict), losses_(losses) {}

  /// Called before a write. `expected`: 0 for inserts. `tag`: 0 for removes. `value`: the new value; empty: the value
  /// of the expected version stays.
  WriteNumber write_called(uint32_t process, RecordId place, Kind kind, uint64_t expected, uint64_t tag,
                           std::optional<int64_t> value);
  /// `version`: the version of the new record; 0 for removes and for failed writes.
  void write_returned(WriteNumber number, StatusCode code, uint64_t version);
  /// A get returned a record, or kNotFound. `requested_at`: Oracle::now() before the call.
  void read(uint32_t process, RecordId place, const ObservedRecord& seen, LogicalTime requested_at);

  /// One scan returned all rows of a table. A scan guarantees only the records that no client changed while it ran.
  void scanned(uint32_t process, TableId table, std::span<const ScannedRow> rows, LogicalTime requested_at);

  void client_crashed(uint32_t process);

  uint64_t writes() const { return acknowledged_; }
  /// Keys of the table that any client has tried to write.
  std::vector<Key> keys(TableId table) const;

 private:
  enum class State : uint8_t { kCalled, kApplied, kRefused, kUnknown };
  struct Write {
    uint32_t process = 0;
    RecordId place;
    Kind kind{};
    State state = State::kCalled;
    bool seen = false;
    uint64_t expected = 0;
    uint64_t version = 0;  // 0 until it is known
    uint64_t tag = 0;
    std::optional<int64_t> value;  // empty: unknown
    LogicalTime requested_at = 0;
    LogicalTime ended = kNever;
    uint64_t starts = 0;  // writes of the record that were called before this one
    bool alone = false;   // none of those was open, and the expected version was the newest
  };
  struct Register {
    std::unordered_map<uint64_t, WriteNumber> by_version;  // the write that made each version
    std::unordered_map<uint64_t, WriteNumber> taken;       // the write that has certainly replaced or removed each
                                                           // version
    std::unordered_map<uint64_t, LogicalTime> taken_by;    // the moment by which that is certain
    std::set<uint64_t> live;                               // versions that exist and are not known to be replaced
    std::set<WriteNumber> open;                            // called, or outcome unknown: may still take effect
    uint64_t starts = 0;                                   // writes called so far
    LogicalTime changed = 0;                               // the last moment at which a write may have taken effect
  };

  void applied(WriteNumber number, uint64_t version, LogicalTime by);
  void take(Register& record, WriteNumber number, LogicalTime by);
  void check_refusal(const Write& write);
  /// Checks the observed record, except against the newest version that the read should have returned. False: a
  /// violation.
  bool check_observed(const std::string& reader, Register& record, RecordId place, const ObservedRecord& seen,
                      LogicalTime requested_at);
  void check_live_versions(Register& record, RecordId place, uint64_t seen_version, LogicalTime requested_at);
  bool may_be_lost(const Write& write) const;
  std::string name(const Write& write) const;
  void violate(std::string_view invariant, const std::string& text) { verdict_.violate(invariant, text); }

  Verdict& verdict_;
  const Losses& losses_;
  std::deque<Write> writes_;
  std::unordered_map<uint64_t, WriteNumber> by_tag_;
  std::unordered_map<RecordId, Register, RecordIdHash> registers_;
  std::map<TableId, std::set<Key>> keys_;
  uint64_t acknowledged_ = 0;
};

/// The model of distributed counters: no number is drawn twice, and the numbers of one Counter object rise.
class CounterModel {
 public:
  CounterModel(Verdict& verdict, const Losses& losses) : verdict_(verdict), losses_(losses) {}

  /// A Counter object drew a number. `object`: the number of the Counter object, unique in the run.
  void drew(uint64_t object, std::string_view counter, uint64_t number);
  uint64_t numbers() const { return numbers_; }

 private:
  Verdict& verdict_;
  const Losses& losses_;
  std::map<std::string, std::unordered_map<uint64_t, uint64_t>, std::less<>> drawn_;  // counter → number → object
  // last number that each object drew
  std::unordered_map<uint64_t, uint64_t> last_;
  uint64_t numbers_ = 0;
};

}  // namespace loam::sim
