// The inside of a distributed counter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <loam/client/counter.h>

#include "client-lib/src/driver/engine.h"
#include "common/fiber/wait.h"
#include "common/wire/storage.h"

namespace loam::client {

/// Names that may have the same hash and lie one after the other; more is as good as impossible.
inline constexpr uint64_t kMaxCounterProbes = 16;
/// Attempts to draw a block against other clients that draw at the same time.
inline constexpr uint32_t kMaxDraws = 64;

/// Draws blocks from one record of loam.counters by exact-version writes. Worker's thread only.
class Counter::Impl {
 public:
  /// `reserve`: whose room its draws take (R6).
  Impl(Engine& engine, std::string name, uint64_t block_size, Reserve reserve = Reserve::kWrite);

  enum class IfAbsent : uint8_t { kMake, kRefuse };
  /// Finds the counter's record, or makes it. kNotFound: there is none, and it is not to be made. In a fiber.
  Status open(IfAbsent absent = IfAbsent::kMake);
  /// In a fiber.
  Result<uint64_t> next();
  Engine& engine() { return engine_; }

 private:
  /// Draws for this fiber and those that wait; the status is for all of them.
  Status draw();
  Status draw_block();
  Status named(const Status& status) const;
  /// Tries once; kConflict: another client was faster.
  Status try_draw();
  Result<Version> write(wire::WriteKind kind, Version expected, uint64_t next);

  Engine& engine_;
  const Table table_;
  const std::string name_;
  const uint64_t block_size_;
  const Reserve reserve_;
  Key key_;
  uint64_t next_ = 0;  // of the block; next_ == end_: used up
  uint64_t end_ = 0;
  bool drawing_ = false;
  std::vector<fiber::Event*> awaiting_draw_;  // in the frames of the waiting fibers
  Status last_draw_;
};

}  // namespace loam::client
