// The disk of a simulated commit manager's host: the state, and the commit log.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <loam/commit/core.h>
#include <loam/commit/log_device.h>
#include <loam/commit/store.h>

#include "common/base/bytes.h"
#include "tests/sim/world.h"

namespace loam::sim {

/// Role: the disk of the commit manager's host. It outlives the process, and a power failure of the host.
///
/// The state. A state is on the disk once store() has returned. If the process dies during store(), the disk has either
/// the new state or the one before, as a whole. A power cut changes nothing.
///
/// The commit log is a file, and for a time a second one beside it that takes over its name later (LogDevice). When the
/// process dies, the disk keeps all finished writes, and any first part of a write under way. After a power cut it
/// keeps the flushed bytes and any first part of the bytes behind them, perhaps with a tail of zeros or of other bytes.
/// A change of the name that was not flushed may be lost.
///
/// Owner: the cluster; outlives all processes. Threads: the simulator's one; those of a process that has died never go
/// on.
class SimDisk final : public commit::Store {
 public:
  explicit SimDisk(World& world) : world_(world) {}

  Bytes found() const override { return state_; }
  Status store(Bytes state) override;
  /// The commit log's place, for the next process. The disk outlives it.
  Result<std::unique_ptr<commit::LogDevice>> log_device() override;

  // ---- what befalls it --------------------------------------------------------------------------------------------

  /// The power goes. No process that uses the disk is alive.
  void cut_power();
  /// Until then no flush of the log ends.
  void stall_flushes(uint64_t until_ns) { stalled_until_ns_ = until_ns; }
  /// Until then there is no more room than the log has taken.
  void fill(uint64_t until_ns) { full_until_ns_ = until_ns; }
  /// Whether the file system can take room ahead.
  void set_reserves(bool reserves) { reserves_ = reserves; }
  /// No flush is stalled and the disk is not full any more.
  void calm() { stalled_until_ns_ = full_until_ns_ = 0; }

  // ---- what is on it ----------------------------------------------------------------------------------------------

  struct File {
    Buffer bytes;
    size_t flushed = 0;     ///< bytes
    uint64_t reserved = 0;  ///< room that it has taken
  };
  /// A copy of all of it, as `cp` makes one.
  struct Copy {
    Buffer state;
    std::optional<File> log;
  };
  Copy copy() const;
  void adopt(const Copy& copy);
  /// The commits in the log that a process which starts now would find. Nothing: there is no log, or no readable one.
  std::optional<commit::CommitLogContents> logged() const;
  static std::optional<commit::CommitLogContents> logged(const Copy& copy);

 private:
  class Device;
  class OpenFile;

  Status write(File& file, Bytes& rest);
  Status reserve(File& file, uint64_t bytes);
  void flush(File& file);
  bool full() const { return world_.world_ns() < full_until_ns_; }
  /// What a power cut leaves of the file.
  void keep_some(File& file);

  World& world_;
  Buffer state_;
  std::shared_ptr<File> log_;
  std::shared_ptr<File> beside_;   // the new log, before it has the name
  std::shared_ptr<File> renamed_;  // has lost its name to log_, which is not flushed yet
  uint64_t stalled_until_ns_ = 0;
  uint64_t full_until_ns_ = 0;
  bool reserves_ = true;
};

}  // namespace loam::sim
