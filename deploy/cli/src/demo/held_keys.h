// Which accounts a client process is writing at this instant, in a file that outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/base/status.h"

namespace loam::cli {

/// A file mapped into memory: one slot for each fiber, with the two accounts of the transfer that it is committing. The
/// kernel keeps what was written when the process is killed, so that others learn which keys it may have held. The
/// writer's slots are written by its worker thread alone; whoever reads does so after the writer's death, or does not
/// mind a transfer too many or too few.
class HeldKeys {
 public:
  static constexpr uint64_t kNone = UINT64_MAX;

  /// Makes the file, every slot empty.
  static Result<HeldKeys> create(const std::filesystem::path& path, unsigned fibers);
  /// The accounts in a file that another process has made; those of a pair are beside each other.
  static Result<std::vector<uint64_t>> read(const std::filesystem::path& path);

  ~HeldKeys();
  HeldKeys(HeldKeys&& other) noexcept;
  HeldKeys& operator=(HeldKeys&&) = delete;

  void begin(unsigned fiber, uint64_t from, uint64_t to);
  void end(unsigned fiber);

 private:
  using Slot = std::atomic<uint64_t>;
  static_assert(Slot::is_always_lock_free && sizeof(Slot) == sizeof(uint64_t), "the file holds plain numbers");

  HeldKeys(Slot* slots, unsigned fibers) : slots_(slots), fibers_(fibers) {}

  Slot* slots_;  // two a fiber
  unsigned fibers_;
};

}  // namespace loam::cli
