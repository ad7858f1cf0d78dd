// A disk in memory for tests of the commit log: it stalls, fails and forgets as it is told.
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <loam/commit/log_device.h>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/testing/patience.h"
#include "common/testing/random.h"

namespace loam::commit {

/// What a log asks of its disk. The operations on a new log have kinds of their own until it has replaced the log.
enum class Step : uint8_t {
  kWrite,
  kFlush,
  kReserve,
  kCreate,
  kNewWrite,
  kNewFlush,
  kNewReserve,
  kRename,
  kFolderFlush,
  kCount,
};

/// Role: outlives the logs on it, as a disk outlives processes. A power cut leaves the flushed bytes of each file, and
/// any part of the rest.
///
/// Threads: any. Owner: the test; it lives longer than the devices.
class MemoryDisk {
 public:
  /// The device of one process.
  std::unique_ptr<LogDevice> device() { return std::make_unique<Device>(*this); }

  /// Operations of this kind wait until release(), after entered() has counted them.
  void hold(Step step) {
    change(step, [](Kind& kind) { kind.held = true; });
  }
  void release(Step step) {
    change(step, [](Kind& kind) { kind.held = false; });
  }
  /// One operation of this kind goes through, though they are held.
  void let_one_pass(Step step) {
    change(step, [](Kind& kind) { ++kind.may_pass; });
  }
  /// Operations of this kind fail from now on; ok: they work again.
  void set_outcome(Step step, const Status& status) {
    change(step, [&](Kind& kind) { kind.outcome = status; });
  }
  /// How many operations of this kind have begun.
  uint64_t entered(Step step) {
    const std::lock_guard lock(mutex_);
    return kind(step).entered;
  }
  [[nodiscard]] bool wait_entered(Step step, uint64_t times) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, testing::kPatience, [&] { return kind(step).entered >= times; });
  }

  /// Room of the disk, for all files together. `promises`: it can take room ahead.
  void set_room(uint64_t bytes, bool promises) {
    const std::lock_guard lock(mutex_);
    room_ = bytes;
    promises_ = promises;
  }

  /// What the log's name leads to now: what the next process finds if this one dies.
  Buffer log() {
    const std::lock_guard lock(mutex_);
    return log_ == nullptr ? Buffer() : log_->bytes;
  }
  /// What the next process may find after a power cut.
  Buffer log_after_power_cut(testing::Random& random) {
    const std::lock_guard lock(mutex_);
    const File& file = random.one_in(2) ? *log_ : *durable_log_;
    const uint64_t kept = random.between(file.flushed, file.bytes.size());
    Buffer bytes(file.bytes.begin(), file.bytes.begin() + static_cast<ptrdiff_t>(kept));
    // Blocks are written in any order: a part that was not flushed may be missing before one that is there.
    if (kept > file.flushed && random.one_in(2)) {
      bytes[random.between(file.flushed, kept - 1)] = std::byte{0};
    }
    return bytes;
  }
  void set_log(Buffer bytes) {
    const std::lock_guard lock(mutex_);
    log_ = durable_log_ = std::make_shared<File>();
    log_->flushed = bytes.size();
    log_->bytes = std::move(bytes);
  }
  /// The disk has nothing of the log, though processes can read it, and a flush changes that no more.
  void forget_flushes() {
    const std::lock_guard lock(mutex_);
    log_->flushed = 0;
    log_->broken = true;
  }
  bool has_new_log() {
    const std::lock_guard lock(mutex_);
    return new_log_ != nullptr;
  }
  uint64_t flushed_bytes() {
    const std::lock_guard lock(mutex_);
    return log_->flushed;
  }

 private:
  struct Kind {
    bool held = false;
    uint64_t may_pass = 0;  // though it is held
    uint64_t entered = 0;
    Status outcome;
  };
  struct File {
    Buffer bytes;
    uint64_t flushed = 0;
    uint64_t reserved = 0;
    bool is_new = false;
    bool broken = false;  // no flush reaches the disk

    uint64_t taken() const { return std::max<uint64_t>(reserved, bytes.size()); }
  };

  class Opened final : public LogFile {
   public:
    Opened(MemoryDisk& disk, std::shared_ptr<File> file) : disk_(disk), file_(std::move(file)) {}
    Status write(Bytes& rest) override {
      LOAM_RETURN_IF_ERROR(disk_.pass(kind(Step::kWrite, Step::kNewWrite)));
      const std::lock_guard lock(disk_.mutex_);
      const uint64_t room = file_->taken() - file_->bytes.size() + disk_.free_bytes();
      const Bytes part = rest.first(std::min<uint64_t>(room, rest.size()));
      file_->bytes.insert(file_->bytes.end(), part.begin(), part.end());
      rest = rest.subspan(part.size());
      return rest.empty() ? ok_status() : Status(StatusCode::kNoSpace, "the memory disk is full");
    }
    Status reserve(uint64_t bytes) override {
      LOAM_RETURN_IF_ERROR(disk_.pass(kind(Step::kReserve, Step::kNewReserve)));
      const std::lock_guard lock(disk_.mutex_);
      if (!disk_.promises_) return ok_status();
      if (bytes > file_->taken() + disk_.free_bytes()) return {StatusCode::kNoSpace, "the memory disk is full"};
      file_->reserved = std::max(file_->reserved, bytes);
      return ok_status();
    }
    Status flush() override {
      uint64_t size = 0;
      {
        const std::lock_guard lock(disk_.mutex_);
        size = file_->bytes.size();
      }
      LOAM_RETURN_IF_ERROR(disk_.pass(kind(Step::kFlush, Step::kNewFlush)));
      const std::lock_guard lock(disk_.mutex_);
      if (!file_->broken) file_->flushed = std::max(file_->flushed, size);
      return ok_status();
    }

   private:
    Step kind(Step of_log, Step of_new_log) {
      const std::lock_guard lock(disk_.mutex_);
      return file_->is_new ? of_new_log : of_log;
    }

    MemoryDisk& disk_;
    const std::shared_ptr<File> file_;
  };

  class Device final : public LogDevice {
   public:
    explicit Device(MemoryDisk& disk) : disk_(disk) {}
    Result<std::optional<Buffer>> read() override {
      const std::lock_guard lock(disk_.mutex_);
      disk_.new_log_ = nullptr;
      if (disk_.log_ == nullptr) return std::optional<Buffer>();
      return std::optional<Buffer>(disk_.log_->bytes);
    }
    Result<std::unique_ptr<LogFile>> create() override {
      LOAM_RETURN_IF_ERROR(disk_.pass(Step::kCreate));
      const std::lock_guard lock(disk_.mutex_);
      disk_.new_log_ = std::make_shared<File>();
      disk_.new_log_->is_new = true;
      return std::unique_ptr<LogFile>(std::make_unique<Opened>(disk_, disk_.new_log_));
    }
    Status replace() override {
      LOAM_RETURN_IF_ERROR(disk_.pass(Step::kRename));
      {
        const std::lock_guard lock(disk_.mutex_);
        disk_.log_ = std::exchange(disk_.new_log_, nullptr);
        if (disk_.durable_log_ == nullptr) disk_.durable_log_ = disk_.log_;
      }
      LOAM_RETURN_IF_ERROR(disk_.pass(Step::kFolderFlush));
      const std::lock_guard lock(disk_.mutex_);
      disk_.log_->is_new = false;
      disk_.durable_log_ = disk_.log_;
      return ok_status();
    }

   private:
    MemoryDisk& disk_;
  };

  Kind& kind(Step step) { return kinds_[static_cast<size_t>(step)]; }
  template <class Change>
  void change(Step step, Change change) {
    {
      const std::lock_guard lock(mutex_);
      change(kind(step));
    }
    changed_.notify_all();
  }
  Status pass(Step step) {
    std::unique_lock lock(mutex_);
    ++kind(step).entered;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !kind(step).held || kind(step).may_pass > 0; });
    if (kind(step).held) --kind(step).may_pass;
    return kind(step).outcome;
  }
  /// With mutex_. Room that no file has taken.
  uint64_t free_bytes() const {
    uint64_t taken = 0;
    for (const File* file : {log_.get(), new_log_.get()}) taken += file == nullptr ? 0 : file->taken();
    return room_ - std::min(room_, taken);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Kind, static_cast<size_t>(Step::kCount)> kinds_;
  std::shared_ptr<File> log_;          // as processes see it
  std::shared_ptr<File> durable_log_;  // that a power cut leaves, if the rename of log_ is not on the disk
  std::shared_ptr<File> new_log_;
  uint64_t room_ = UINT64_MAX;
  bool promises_ = true;
};

}  // namespace loam::commit
