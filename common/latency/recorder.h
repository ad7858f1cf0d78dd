// The latencies that one thread records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/latency/histogram.h"
#include "common/latency/operation_kind.h"
#include "common/latency/slow_operations.h"
#include "common/latency/stage.h"

namespace loam::latency {

/// Records the durations of operations by kind, the durations of stages, and the slow operations.
///
/// Owner: a thread, which alone records. Threads: any thread reads. Only slow operations take a lock.
class Recorder {
 public:
  /// Counts `count` operations of a kind that took `ns`.
  void operation(OperationKind kind, uint64_t ns, uint64_t count = 1) {
    kinds_[static_cast<size_t>(kind)].add(ns, count);
  }
  /// Counts one stage that took `ns`.
  void stage(Stage stage, uint64_t ns) { stages_[static_cast<size_t>(stage)].add(ns); }
  /// Offers a slow operation.
  void slow(const SlowOperation& operation) { slow_.add(operation); }

  /// The durations of the operations of one kind, by the number of the kind.
  const LiveHistogram& kind(size_t at) const { return kinds_[at]; }
  /// The durations of one stage, by the number of the stage.
  const LiveHistogram& stage(size_t at) const { return stages_[at]; }
  /// The slow operations.
  const SlowOperations& slow() const { return slow_; }

 private:
  std::array<LiveHistogram, kOperationKinds> kinds_;
  std::array<LiveHistogram, kStages> stages_;
  SlowOperations slow_;
};

/// A copy of what one or several threads have recorded.
struct Latencies {
  std::array<Histogram, kOperationKinds> kinds;  ///< by OperationKind
  std::array<Histogram, kStages> stages;         ///< by Stage
  std::vector<SlowOperation> slow;               ///< in no particular order
  uint64_t slow_seen = 0;                        ///< slow operations since the start, also those that are not kept
  uint64_t now_ns = 0;                           ///< the clock of SlowOperation::ended_ns at the time of the copy

  /// Adds what a thread has recorded. `slow` stays as it is if `with_slow` is false: the list is long, and the thread
  /// waits to record a slow operation while the list is copied.
  void add(const Recorder& recorder, bool with_slow = true) {
    for (size_t i = 0; i < kOperationKinds; ++i) kinds[i].merge(recorder.kind(i));
    for (size_t i = 0; i < kStages; ++i) stages[i].merge(recorder.stage(i));
    if (with_slow) recorder.slow().list(slow);
    slow_seen += recorder.slow().seen();
  }
};

}  // namespace loam::latency
