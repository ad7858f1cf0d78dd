// Non-transactional tables and counters, judged from what clients did and saw.
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

/// The model of the exact-version tables (R21): each record is a register whose states are linked by the versions that
/// the writes have named, so that no search is needed.
///
/// Owner: the Oracle. Threads: every entry takes the verdict's lock.
class PlainModel {
 public:
  enum class Kind : uint8_t { kInsert, kUpdate, kRemove };
  using WriteNumber = uint32_t;

  PlainModel(Verdict& verdict, const Losses& losses) : verdict_(verdict), losses_(losses) {}

  /// Before the call. `expected` of inserts is 0; `tag` of removes is 0. `value`: what is written there; nothing: what
  /// is in the expected version stays.
  WriteNumber write_called(uint32_t process, Place place, Kind kind, uint64_t expected, uint64_t tag,
                           std::optional<int64_t> value);
  /// `version`: of the record made; 0 for removes and for what failed.
  void write_returned(WriteNumber number, StatusCode code, uint64_t version);
  /// A get returned a record, or kNotFound. `asked`: Oracle::now() before the call.
  void read(uint32_t process, Place place, const Seen& seen, Moment asked);

  /// All rows of a table by one scan, which promises only the records that nobody changed while it ran.
  void scanned(uint32_t process, TableId table, std::span<const ScannedRow> rows, Moment asked);

  void client_crashed(uint32_t process);

  uint64_t writes() const { return acknowledged_; }
  /// Keys of a table that anybody has ever tried to write.
  std::vector<Key> keys(TableId table) const;

 private:
  enum class State : uint8_t { kCalled, kApplied, kRefused, kUnknown };
  struct Write {
    uint32_t process = 0;
    Place place;
    Kind kind{};
    State state = State::kCalled;
    bool seen = false;
    uint64_t expected = 0;
    uint64_t version = 0;  // once known
    uint64_t tag = 0;
    std::optional<int64_t> value;  // nothing: nobody can say
    Moment asked = 0;
    Moment ended = kNever;
    uint64_t starts = 0;  // writes of the record called before it
    bool alone = false;   // none of them was open, and the version expected was the newest
  };
  struct Register {
    std::unordered_map<uint64_t, WriteNumber> by_version;  // who made it
    std::unordered_map<uint64_t, WriteNumber> taken;       // who has certainly replaced or removed it
    std::unordered_map<uint64_t, Moment> taken_by;         // since when that is certain
    std::set<uint64_t> live;                               // made, and not known to be replaced
    std::set<WriteNumber> open;                            // called, or unknown: may come into effect
    uint64_t starts = 0;                                   // writes called
    Moment changed = 0;                                    // the last moment when something may have come into effect
  };

  void applied(WriteNumber number, uint64_t version, Moment by);
  void take(Register& record, WriteNumber number, Moment by);
  void judge_refusal(const Write& write);
  /// What was seen, but for what should have been; false: a violation.
  bool judge_seen(const std::string& reader, Register& record, Place place, const Seen& seen, Moment asked);
  void judge_live(Register& record, Place place, uint64_t seen_version, Moment asked);
  bool exposed(const Write& write) const;
  std::string name(const Write& write) const;
  void violate(std::string_view invariant, const std::string& text) { verdict_.violate(invariant, text); }

  Verdict& verdict_;
  const Losses& losses_;
  std::deque<Write> writes_;
  std::unordered_map<uint64_t, WriteNumber> by_tag_;
  std::unordered_map<Place, Register, PlaceHash> registers_;
  std::map<TableId, std::set<Key>> keys_;
  uint64_t acknowledged_ = 0;
};

/// Distributed counters: no number twice, rising within one Counter object.
class CounterModel {
 public:
  CounterModel(Verdict& verdict, const Losses& losses) : verdict_(verdict), losses_(losses) {}

  /// `object`: of the Counter that drew it, unique in the run.
  void drew(uint64_t object, std::string_view counter, uint64_t number);
  uint64_t numbers() const { return numbers_; }

 private:
  Verdict& verdict_;
  const Losses& losses_;
  std::map<std::string, std::unordered_map<uint64_t, uint64_t>, std::less<>> drawn_;  // counter → number → object
  std::unordered_map<uint64_t, uint64_t> last_;                                       // of each object
  uint64_t numbers_ = 0;
};

}  // namespace loam::sim
