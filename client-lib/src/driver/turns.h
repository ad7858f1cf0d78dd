// One after the other at records that many want.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"
#include "common/fiber/wait.h"
#include "common/wire/storage.h"

namespace loam::client {

/// The lines of a client's transactions at contended records. Of two that overlap and write the same record one must
/// lose, after it has read all that it needs; in line, each begins when the one before it has ended, and sees what that
/// has written. A line keeps nobody from anything: whoever does not stand in it, and other clients' transactions, are
/// judged by the storage node.
///
/// Owner: the engine; outlives its turns. One thread, the worker's.
class Turns {
 public:
  class Turn;

  /// The longest that a line waits for the one whose turn it is: one that hangs shall not hold up others for ever.
  static constexpr uint64_t kMostWaitNs = 1'000'000'000;

  Turns() = default;
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  size_t lines() const { return lines_.size(); }

 private:
  struct Hash {
    size_t operator()(const wire::RecordId& record) const {
      return std::hash<Key>()(record.key) + std::hash<TableId>()(record.table);
    }
  };
  /// Who stands at the record, the first has its turn. Never empty.
  struct Line {
    std::deque<Turn*> all;
    uint64_t since_ns = 0;  ///< that it is the first's turn
  };

  std::unordered_map<wire::RecordId, Line, Hash> lines_;
};

/// One transaction's places in lines. In its frame.
class Turns::Turn {
 public:
  explicit Turn(Turns& turns) : turns_(turns) {}
  ~Turn() { leave(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// In a fiber: leaves all lines, and suspends until this is the first at each of `records`, or goes on without that,
  /// if another has been the first for kMostWaitNs. Records are taken in their order, so that no two wait for each
  /// other.
  void take(std::vector<wire::RecordId> records);
  void leave();

 private:
  void wait_at(const wire::RecordId& record);
  void leave(const wire::RecordId& record);

  Turns& turns_;
  std::vector<wire::RecordId> records_;  // at whose lines it stands
  fiber::Event first_;                   // of the line at which it waits
};

}  // namespace loam::client
