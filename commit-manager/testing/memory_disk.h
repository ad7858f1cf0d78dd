// A disk in memory for tests of the commit log. The test makes it stall, fail and lose bytes.
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
#include "common/testing/eventually.h"
#include "common/testing/random.h"

namespace loam::commit {

/// The kinds of disk operations. Operations on a new file have kinds of their own until it has replaced the log.
enum class DiskOperation : uint8_t {
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

/// A disk that outlives the logs on it. A power cut leaves the flushed bytes of each file and any part of the others.
///
/// Owner: the test. It outlives its devices. Threads: any.
class MemoryDisk {
 public:
  /// Makes the device of one process.
  std::unique_ptr<LogDevice> device() { return std::make_unique<Device>(*this); }

  /// Makes operations of this kind wait until release(). entered() counts them before they wait.
  void hold(DiskOperation step) {
    change(step, [](Kind& kind) { kind.held = true; });
  }
  void release(DiskOperation step) {
    change(step, [](Kind& kind) { kind.held = false; });
  }
  /// Lets one held operation of this kind continue.
  void let_one_pass(DiskOperation step) {
    change(step, [](Kind& kind) { ++kind.may_pass; });
  }
  /// Makes operations of this kind fail with this status; ok makes them work again.
  void set_outcome(DiskOperation step, const Status& status) {
    change(step, [&](Kind& kind) { kind.outcome = status; });
  }
  /// Returns the number of operations of this kind that have begun.
  uint64_t entered(DiskOperation step) {
    const std::lock_guard lock(mutex_);
    return kind(step).entered;
  }
  [[nodiscard]] bool wait_entered(DiskOperation step, uint64_t times) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, testing::kTestTimeout, [&] { return kind(step).entered >= times; });
  }

  /// Sets the size of the disk for all files together. `promises`: the disk can allocate ahead.
  void set_room(uint64_t bytes, bool promises) {
    const std::lock_guard lock(mutex_);
    room_ = bytes;
    promises_ = promises;
  }

  /// Returns the log that the next process finds if this process dies now.
  Buffer log() {
    const std::lock_guard lock(mutex_);
    return log_ == nullptr ? Buffer() : log_->bytes;
  }
  /// Returns a log that the next process may find after a power cut.
  Buffer log_after_power_cut(testing::Random& random) {
    const std::lock_guard lock(mutex_);
    const File& file = random.one_in(2) ? *log_ : *durable_log_;
    const uint64_t kept = random.between(file.flushed, file.bytes.size());
    Buffer bytes(file.bytes.begin(), file.bytes.begin() + static_cast<ptrdiff_t>(kept));
    // The disk writes blocks in any order, so an unflushed block may be lost although a later one survives.
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
  /// Loses the bytes of the log on the disk. Processes can still read them, and later flushes do not reach the disk.
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
    uint64_t may_pass = 0;  // operations that may continue although the kind is held
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

  class MemoryFile final : public LogFile {
   public:
    MemoryFile(MemoryDisk& disk, std::shared_ptr<File> file) : disk_(disk), file_(std::move(file)) {}
    Status write(Bytes& rest) override {
      LOAM_RETURN_IF_ERROR(disk_.pass(kind(DiskOperation::kWrite, DiskOperation::kNewWrite)));
      const std::lock_guard lock(disk_.mutex_);
      const uint64_t room = file_->taken() - file_->bytes.size() + disk_.free_bytes();
      const Bytes part = rest.first(std::min<uint64_t>(room, rest.size()));
      file_->bytes.insert(file_->bytes.end(), part.begin(), part.end());
      rest = rest.subspan(part.size());
      return rest.empty() ? ok_status() : Status(StatusCode::kNoSpace, "the memory disk is full");
    }
    Status reserve(uint64_t bytes) override {
      LOAM_RETURN_IF_ERROR(disk_.pass(kind(DiskOperation::kReserve, DiskOperation::kNewReserve)));
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
      LOAM_RETURN_IF_ERROR(disk_.pass(kind(DiskOperation::kFlush, DiskOperation::kNewFlush)));
      const std::lock_guard lock(disk_.mutex_);
      if (!file_->broken) file_->flushed = std::max(file_->flushed, size);
      return ok_status();
    }

   private:
    DiskOperation kind(DiskOperation of_log, DiskOperation of_new_log) {
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
      LOAM_RETURN_IF_ERROR(disk_.pass(DiskOperation::kCreate));
      const std::lock_guard lock(disk_.mutex_);
      disk_.new_log_ = std::make_shared<File>();
      disk_.new_log_->is_new = true;
      return std::unique_ptr<LogFile>(std::make_unique<MemoryFile>(disk_, disk_.new_log_));
    }
    Status replace() override {
      LOAM_RETURN_IF_ERROR(disk_.pass(DiskOperation::kRename));
      {
        const std::lock_guard lock(disk_.mutex_);
        disk_.log_ = std::exchange(disk_.new_log_, nullptr);
        if (disk_.durable_log_ == nullptr) disk_.durable_log_ = disk_.log_;
      }
      LOAM_RETURN_IF_ERROR(disk_.pass(DiskOperation::kFolderFlush));
      const std::lock_guard lock(disk_.mutex_);
      disk_.log_->is_new = false;
      disk_.durable_log_ = disk_.log_;
      return ok_status();
    }

   private:
    MemoryDisk& disk_;
  };

  Kind& kind(DiskOperation step) { return kinds_[static_cast<size_t>(step)]; }
  template <class Change>
  void change(DiskOperation step, Change change) {
    {
      const std::lock_guard lock(mutex_);
      change(kind(step));
    }
    changed_.notify_all();
  }
  Status pass(DiskOperation step) {
    std::unique_lock lock(mutex_);
    ++kind(step).entered;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !kind(step).held || kind(step).may_pass > 0; });
    if (kind(step).held) --kind(step).may_pass;
    return kind(step).outcome;
  }
  /// Returns the free space. The caller holds mutex_.
  uint64_t free_bytes() const {
    uint64_t taken = 0;
    for (const File* file : {log_.get(), new_log_.get()}) taken += file == nullptr ? 0 : file->taken();
    return room_ - std::min(room_, taken);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Kind, static_cast<size_t>(DiskOperation::kCount)> kinds_;
  std::shared_ptr<File> log_;          // as processes see it
  std::shared_ptr<File> durable_log_;  // the log after a power cut, if the rename of log_ is not flushed
  std::shared_ptr<File> new_log_;
  uint64_t room_ = UINT64_MAX;
  bool promises_ = true;
};

}  // namespace loam::commit
