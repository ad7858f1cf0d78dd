// Shared by all models of the oracle: the order of events, and the first violation.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/ids.h"

namespace loam::sim {

/// Position of an event in the order in which the oracle was told of all events, from 1. The oracle's rules use these
/// times only: they are exact, and need no clock of a process.
using LogicalTime = uint64_t;
inline constexpr LogicalTime kNever = UINT64_MAX;

/// Names one record.
struct RecordId {
  TableId table;
  Key key;
  auto operator<=>(const RecordId&) const = default;
};
std::string to_string(RecordId place);

struct RecordIdHash {
  size_t operator()(RecordId place) const noexcept {
    return std::hash<Key>()(place.key) ^ (std::hash<TableId>()(place.table) * 0x9e3779b97f4a7c15u);
  }
};

/// A record as a client read it. Version 0: there is no record.
struct ObservedRecord {
  uint64_t version = 0;
  uint64_t tag = 0;
  int64_t value = 0;

  bool present() const { return version != 0; }
  bool operator==(const ObservedRecord&) const = default;
};
std::string to_string(const ObservedRecord& seen);

/// A row that a scan returned.
struct ScannedRow {
  Key key;
  ObservedRecord seen;
};

#ifdef LOAM_ENV_SIM
/// The simulator runs on one thread, and a process that crashes must not leave a locked mutex behind.
struct OracleMutex {
  void lock() {}
  void unlock() {}
};
#else
using OracleMutex = std::mutex;
#endif

/// The order of events and the first violation of a run.
///
/// Owner: the Oracle; its models refer to it. Threads: the holder of mutex(); every public function of a model locks
/// it.
class Verdict {
 public:
  explicit Verdict(std::function<uint64_t()> now_ns) : now_ns_(std::move(now_ns)) {}

  OracleMutex& mutex() { return mutex_; }
  /// The position of the next event.
  LogicalTime next() { return ++last_; }
  LogicalTime last() const { return last_; }

  /// Records the first violation and its time; later ones are only counted. `invariant` is a name in invariants.cc.
  void violate(std::string_view invariant, std::string_view text);
  bool failed() const { return violations_ != 0; }
  /// For example "lost-update: … (at 1.204 s, event 4711)"; empty while there is no violation.
  const std::string& message() const { return message_; }
  std::string_view invariant() const { return invariant_; }
  uint64_t violations() const { return violations_; }
  uint64_t now_ns() const { return now_ns_(); }

 private:
  const std::function<uint64_t()> now_ns_;
  OracleMutex mutex_;
  LogicalTime last_ = 0;
  uint64_t violations_ = 0;
  std::string message_;
  std::string invariant_;
};

}  // namespace loam::sim
