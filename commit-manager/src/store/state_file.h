// The state of the commit manager in a file.
#pragma once

#include <memory>
#include <string>

#include <loam/commit/stable_storage.h>

#include "common/base/bytes.h"
#include "common/base/status.h"

namespace loam::commit {

/// Keeps the state of the core [R11, commit log and restart of the commit manager] in `FOLDER/state`.
///
/// store() replaces the state as a whole, in four steps: it writes `state.new`, flushes that file (fdatasync),
/// renames it to `state`, and flushes the folder (fsync). A crash at any moment leaves the old state or the new one,
/// and at most a `state.new` that open() removes.
///
/// `FOLDER/lock` is locked while the object lives (flock, so the kernel unlocks it when a process dies), and contains
/// the process id of its owner. Two commit managers on one folder would give out the same ids (R10, cluster identity
/// and incarnations).
///
/// The file contains the bytes of the core only, which begin with a format and a checksum (Core::check_state()).
///
/// Owner: CommitManager. Threads: one at a time (see StableStorage). After a failed store() the disk holds the old
/// state or the new one, and it is unknown which. So every later store() fails too.
class StateFile final : public StableStorage {
 public:
  /// Creates the folder if its parent exists, locks it, and reads the state. kUnavailable: another commit manager has
  /// the folder. kInvalidArgument: the folder cannot be created or written. kInternal: the state cannot be read or is
  /// empty.
  static Result<std::unique_ptr<StateFile>> open(const std::string& folder);
  ~StateFile() override;
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  /// Returns the state that open() found; empty for a new cluster.
  Bytes stored_state() const override { return loaded_state_; }

  Result<std::unique_ptr<LogDevice>> log_device() override;
  /// Replaces the state, and blocks until it is on the disk. kNoSpace: the disk is full. kInternal: any other
  /// failure.
  Status store(Bytes state) override;

 private:
  StateFile(std::string folder, int folder_descriptor, int lock);

  Status read();
  Status replace(Bytes state);
  Status write_beside(Bytes state);

  const std::string folder_;
  const int folder_descriptor_;
  const int lock_;
  Buffer loaded_state_;
  Status failed_;
};

/// Upper bound on the bytes of a state, read or written. A larger file is no state, and must not fill the memory.
inline constexpr size_t kMaxStateBytes = 64u << 20;

}  // namespace loam::commit
