// What fibers of the recoverer wait for.
#pragma once

#include "common/base/status.h"

namespace loam::commit {

class RecoveryEngine;

/// Something that is asked of nodes, known to the engine while it lives: when the engine closes, nodes forget what they
/// were asked, and it tells whoever waits. Worker's thread only.
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
