// What fibers of the recoverer wait for.
#pragma once

#include "common/base/status.h"

namespace loam::commit {

class RecoveryEngine;

/// An open request to nodes, registered with the engine while it lives: when the engine closes, the nodes' requests
/// are forgotten, and engine_closes() wakes the waiting fiber. Worker's thread only.
class RecoveryWait {
 public:
  explicit RecoveryWait(RecoveryEngine& engine);
  RecoveryWait(const RecoveryWait&) = delete;
  RecoveryWait& operator=(const RecoveryWait&) = delete;

  /// No node answers any more; destroys nothing.
  virtual void engine_closes(const Status& status) = 0;

 protected:
  ~RecoveryWait();

  RecoveryEngine& engine_;
};

}  // namespace loam::commit
