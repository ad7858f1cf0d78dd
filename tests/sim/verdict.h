// What all parts of the oracle share: the order of events, and the first violation.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/ids.h"

namespace loam::sim {

/// Place of an event in the order in which the oracle was told of them, from 1. All times of the oracle's rules are
/// these: they are exact, and no process's clock is trusted.
using Moment = uint64_t;
inline constexpr Moment kNever = UINT64_MAX;

/// One record's name.
struct Place {
  TableId table;
  Key key;
  auto operator<=>(const Place&) const = default;
};
std::string to_string(Place place);

struct PlaceHash {
  size_t operator()(Place place) const noexcept {
    return std::hash<Key>()(place.key) ^ (std::hash<TableId>()(place.table) * 0x9e3779b97f4a7c15u);
  }
};

/// A record as a client read it. Version 0: there is none.
struct Seen {
  uint64_t version = 0;
  uint64_t tag = 0;
  int64_t value = 0;

  bool present() const { return version != 0; }
  bool operator==(const Seen&) const = default;
};
std::string to_string(const Seen& seen);

/// A row of a scan.
struct ScannedRow {
  Key key;
  Seen seen;
};

#ifdef LOAM_ENV_SIM
/// The simulator is one thread, and a process that crashes must leave no lock behind.
struct OracleMutex {
  void lock() {}
  void unlock() {}
};
#else
using OracleMutex = std::mutex;
#endif

/// The order of events and the first violation of a run.
///
/// Owner: the Oracle; its models refer to it. Threads: whoever holds mutex(), which every entry of a model takes.
class Verdict {
 public:
  explicit Verdict(std::function<uint64_t()> now_ns) : now_ns_(std::move(now_ns)) {}

  OracleMutex& mutex() { return mutex_; }
  /// The next event's place.
  Moment next() { return ++last_; }
  Moment last() const { return last_; }

  /// Records the first violation and the time; later ones are only counted. `invariant` is a name of kInvariants.
  void violate(std::string_view invariant, std::string_view text);
  bool failed() const { return violations_ != 0; }
  /// "lost-update: … (at 1.204 s, event 4711)", empty while nothing failed.
  const std::string& message() const { return message_; }
  std::string_view invariant() const { return invariant_; }
  uint64_t violations() const { return violations_; }
  uint64_t now_ns() const { return now_ns_(); }

 private:
  const std::function<uint64_t()> now_ns_;
  OracleMutex mutex_;
  Moment last_ = 0;
  uint64_t violations_ = 0;
  std::string message_;
  std::string invariant_;
};

}  // namespace loam::sim
