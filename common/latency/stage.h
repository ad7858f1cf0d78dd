// Stages of an operation: the parts of its time, from its arrival to its answer.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>

/// Measures how long operations take, and where their time goes.
namespace loam::latency {

/// A part of the time of an operation.
enum class Stage : uint8_t {
  kScheduling,   ///< the thread was ready, and the operating system or the hypervisor ran something else
  kCompaction,   ///< the network thread slept, so that compaction got its share of a core
  kMemory,       ///< the network thread slept, because memory was nearly full
  kQueue,        ///< the thread executed requests that had arrived earlier
  kSessionLock,  ///< another connection of the session executed requests
  kIndexGrowth,  ///< the operation moved many slots of a hash index to a larger one
  kExecution,    ///< the server decoded and executed the request, without the stages above
  kLog,          ///< the commit waited for the commit log
  kAnswer,       ///< the server encoded the replies and passed them to the network
  kClient,       ///< fibers of the client ran, and the request or its reply waited for them
  kWindow,       ///< the request waited in the client for a connection, or for room in the server's reply window
  kNetwork,      ///< the rest of a client's wait: the network, and the stages in the server
};
/// Number of stages.
inline constexpr size_t kStages = 12;

/// Returns the name of a stage: lower case, words joined by underscores.
std::string_view to_string(Stage stage);

/// The time of each stage of one operation, in nanoseconds.
class StageTimes {
 public:
  /// The time of a stage, to be changed.
  uint64_t& operator[](Stage stage) { return ns_[static_cast<size_t>(stage)]; }
  /// The time of a stage.
  uint64_t operator[](Stage stage) const { return ns_[static_cast<size_t>(stage)]; }
  /// Returns the sum of all stages.
  uint64_t sum() const { return std::accumulate(ns_.begin(), ns_.end(), uint64_t{0}); }
  /// Returns the longest stage; the first one if all are 0.
  Stage longest() const { return static_cast<Stage>(std::ranges::max_element(ns_) - ns_.begin()); }
  /// Moves at most `ns` from one stage to another one.
  void move(Stage from, Stage to, uint64_t ns) {
    const uint64_t moved = std::min(ns, (*this)[from]);
    (*this)[from] -= moved;
    (*this)[to] += moved;
  }

 private:
  std::array<uint64_t, kStages> ns_{};
};

}  // namespace loam::latency
