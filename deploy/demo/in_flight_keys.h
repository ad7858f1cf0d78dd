// The accounts that a client process is writing at the moment, in a file that outlives the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/base/status.h"

namespace loam::cli {

/// The keys of the transfers that a client process is committing, in a file mapped into memory. The file has one slot
/// for each fiber, with the two accounts of its transfer. The kernel keeps the content when the process is killed, so
/// other processes learn which keys it may have locked. Threads: only the worker thread of the writer writes its slots.
/// A reader reads after the writer's death, or tolerates a transfer too many or too few.
class InFlightKeys {
 public:
  /// The content of an empty slot.
  static constexpr uint64_t kNone = UINT64_MAX;

  /// Creates the file with empty slots for `fibers` fibers.
  static Result<InFlightKeys> create(const std::filesystem::path& path, unsigned fibers);
  /// Reads the accounts from a file of another process. The two accounts of a transfer are adjacent.
  static Result<std::vector<uint64_t>> read(const std::filesystem::path& path);

  ~InFlightKeys();
  InFlightKeys(InFlightKeys&& other) noexcept;
  InFlightKeys& operator=(InFlightKeys&&) = delete;

  /// Stores the two accounts of the transfer that a fiber begins to commit.
  void begin(unsigned fiber, uint64_t from, uint64_t to);
  /// Empties the slot of a fiber.
  void end(unsigned fiber);

 private:
  using Slot = std::atomic<uint64_t>;
  static_assert(Slot::is_always_lock_free && sizeof(Slot) == sizeof(uint64_t), "the file holds plain numbers");

  InFlightKeys(Slot* slots, unsigned fibers) : slots_(slots), fibers_(fibers) {}

  Slot* slots_;  // two for each fiber
  unsigned fibers_;
};

}  // namespace loam::cli
