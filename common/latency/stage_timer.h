// Timers for rare stages deep inside of an operation, such as the growth of an index.
#pragma once

#include <cstdint>
#include <utility>

#include "common/base/env.h"
#include "common/latency/stage.h"

namespace loam::latency {

/// The rare stages of the operations that the calling thread executes now.
struct RareStages {
  bool any = false;  ///< whether a time is not 0
  StageTimes times;

  /// Returns the stages of the calling thread.
  static RareStages& of_thread() {
    // Without a constructor call: the object is constant-initialized.
    static constinit thread_local RareStages stages;
    return stages;
  }
};

/// Adds the time from its construction to its destruction to a stage of the calling thread. Does nothing in the
/// simulator, whose schedule must not depend on timers.
///
/// Use it in rare stages only: it reads the clock twice.
class StageTimer {
 public:
  explicit StageTimer(Stage stage) : stage_(stage), began_ns_(Env::kSimulated ? 0 : Env::now_ns()) {}
  ~StageTimer() {
    if constexpr (Env::kSimulated) return;
    RareStages& stages = RareStages::of_thread();
    stages.any = true;
    stages.times[stage_] += Env::now_ns() - began_ns_;
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  const Stage stage_;
  const uint64_t began_ns_;
};

}  // namespace loam::latency
