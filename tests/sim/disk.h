// The disk of a simulated commit manager.
#pragma once

#include <loam/commit/manager.h>

#include "common/base/bytes.h"
#include "tests/sim/world.h"

namespace loam::sim {

/// Holds the commit manager's durable state over its process's death. What store() has returned from is there; what was
/// being stored when the process died may be there, as a whole, or not.
class SimDisk final : public commit::Store {
 public:
  explicit SimDisk(World& world) : world_(world) {}

  Bytes found() const override { return state_; }
  Status store(Bytes state) override;

 private:
  World& world_;
  Buffer state_;
};

}  // namespace loam::sim
