// Counter::Impl: draws blocks of numbers from a record of the cluster.
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

/// Most counters whose names have colliding hashes; they lie at successive keys. More are practically impossible.
inline constexpr uint64_t kMaxCounterProbes = 16;
/// Most attempts to draw a block while other clients draw at the same time.
inline constexpr uint32_t kMaxAllocationAttempts = 64;

/// Draws blocks from one record of the table loam.counters by exact-version writes (R21). Threads: the worker thread
/// only.
class Counter::Impl {
 public:
  /// `reserve`: the memory reserve that its writes may use (R6, room before the claim).
  Impl(Engine& engine, std::string name, uint64_t block_size, Reserve reserve = Reserve::kWrite);

  /// The action of open() if the counter does not exist.
  enum class IfAbsent : uint8_t { kCreate, kFail };
  /// Finds the counter's record, or creates it. kNotFound: there is none, and `absent` is kFail. In a fiber.
  Status open(IfAbsent absent = IfAbsent::kCreate);
  /// Returns the next number. In a fiber.
  Result<uint64_t> next();
  Engine& engine() { return engine_; }

 private:
  /// Draws a block for this fiber and for all that wait. They share the status.
  Status allocate();
  Status allocate_block();
  Status named(const Status& status) const;
  /// Makes one attempt. kConflict: another client was faster.
  Status try_allocate_block();
  Result<Version> write(wire::WriteKind kind, Version expected, uint64_t next);

  Engine& engine_;
  const Table table_;
  const std::string name_;
  const uint64_t block_size_;
  const Reserve reserve_;
  Key key_;
  uint64_t next_ = 0;  // next number of the block; next_ == end_: the block is used up
  uint64_t end_ = 0;
  bool allocating_ = false;
  std::vector<fiber::Event*> allocation_waiters_;  // in the frames of the waiting fibers
  Status last_allocation_;
};

}  // namespace loam::client
