// The disk of a simulated commit manager's host: it holds the state and the commit log.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <loam/commit/core.h>
#include <loam/commit/log_device.h>
#include <loam/commit/stable_storage.h>

#include "common/base/bytes.h"
#include "tests/sim/simulator.h"

namespace loam::sim {

/// Role: the disk of the commit manager's host. It survives the process and a power cut of the host.
///
/// The state. A state is on the disk when store() has returned. If the process dies during store(), the disk has
/// either the new state or the previous one, as a whole. A power cut changes nothing.
///
/// The commit log. The log is a file; during a rewrite a second file exists beside it, which takes over the name
/// later (LogDevice). When the process dies, the disk keeps all finished writes, and any prefix of a write that is
/// being executed. After a power cut the disk keeps the flushed bytes and any prefix of the unflushed bytes, perhaps
/// with a tail of zeros or of other bytes. A power cut may undo a rename that was not flushed.
///
/// Owner: the cluster; the disk outlives all processes. Threads: the simulator's only one; threads of a dead process
/// never continue.
class SimDisk final : public commit::StableStorage {
 public:
  explicit SimDisk(Simulator& simulator) : simulator_(simulator) {}

  Bytes stored_state() const override { return state_; }
  Status store(Bytes state) override;
  /// The device of the commit log, for the next process. The disk outlives it.
  Result<std::unique_ptr<commit::LogDevice>> log_device() override;

  // ---- faults -----------------------------------------------------------------------------------------------------

  /// The host loses power. Precondition: no process that uses the disk is alive.
  void cut_power();
  /// No flush of the log ends before `until_ns`.
  void stall_flushes(uint64_t until_ns) { stalled_until_ns_ = until_ns; }
  /// The disk is full until `until_ns`: the log can only use space that it has reserved.
  void fill(uint64_t until_ns) { full_until_ns_ = until_ns; }
  /// Whether the file system supports preallocation.
  void set_reserves(bool reserves) { reserves_ = reserves; }
  /// Ends stalled flushes and the full disk.
  void clear_faults() { stalled_until_ns_ = full_until_ns_ = 0; }

  // ---- content ----------------------------------------------------------------------------------------------------

  /// One file of the commit log.
  struct File {
    Buffer bytes;
    size_t flushed = 0;     ///< length of the flushed prefix in bytes
    uint64_t reserved = 0;  ///< bytes that the file has reserved on the disk
  };
  /// A copy of the whole disk, as `cp` makes it.
  struct Copy {
    Buffer state;
    std::optional<File> log;
  };
  Copy copy() const;
  /// Replaces the content of the disk by the copy.
  void adopt(const Copy& copy);
  /// The commits that a process which starts now would find in the log. Empty if there is no readable log.
  std::optional<commit::CommitLogContents> logged() const;
  static std::optional<commit::CommitLogContents> logged(const Copy& copy);

 private:
  class Device;
  class OpenFile;

  Status write(File& file, Bytes& rest);
  Status reserve(File& file, uint64_t bytes);
  void flush(File& file);
  bool full() const { return simulator_.virtual_now_ns() < full_until_ns_; }
  /// Keeps of the file only the bytes that survive a power cut, by random choice.
  void truncate_unflushed(File& file);

  Simulator& simulator_;
  Buffer state_;
  std::shared_ptr<File> log_;
  std::shared_ptr<File> new_log_;  // the second file during a rewrite, before its rename
  std::shared_ptr<File> renamed_;  // the file whose name log_ has taken over by a rename that is not flushed yet
  uint64_t stalled_until_ns_ = 0;
  uint64_t full_until_ns_ = 0;
  bool reserves_ = true;
};

}  // namespace loam::sim
