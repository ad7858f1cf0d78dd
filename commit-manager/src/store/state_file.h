// What survives the commit manager: a folder with one file in it.
#pragma once

#include <memory>
#include <string>

#include <loam/commit/store.h>

#include "common/base/bytes.h"
#include "common/base/status.h"

namespace loam::commit {

/// Role: keeps the core's durable state [R11] in `FOLDER/state`, replaced as a whole: the new one is written to
/// `state.new` beside it, that file is brought to the disk (fdatasync), takes the place of the old one (rename), and
/// the folder is brought to the disk (fsync), all before store() returns. A crash at any moment leaves the old state or
/// the new one, and at most a `state.new` that open() removes.
///
/// `FOLDER/lock` is locked while the object lives (flock, so the kernel unlocks it when a process dies), and says whose
/// it is: two commit managers on one folder would give out the same ids.
///
/// The file has the core's bytes and nothing else: they begin with a format and a checksum (Core::check_state()).
///
/// Owner: CommitManager. Threads: one at a time (see Store). After a failed store() the disk holds the old
/// state or the new one, and it is unknown which: every later one fails too.
class StateFile final : public Store {
 public:
  /// Makes the folder if only it is missing, takes the lock, and reads. kUnavailable: another manager has the folder;
  /// kInvalidArgument: it cannot be made or written; kInternal: the state cannot be
  /// read, or is empty.
  static Result<std::unique_ptr<StateFile>> open(const std::string& folder);
  ~StateFile() override;
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  /// As it was found by open(); empty: a new cluster.
  Bytes found() const override { return found_; }

  Result<std::unique_ptr<LogDevice>> log_device() override;
  /// Blocks until the state is on the disk. kNoSpace: the disk is full; kInternal: another failure.
  Status store(Bytes state) override;

 private:
  StateFile(std::string folder, int folder_descriptor, int lock);

  Status read();
  Status replace(Bytes state);
  Status write_beside(Bytes state);

  const std::string folder_;
  const int folder_descriptor_;
  const int lock_;
  Buffer found_;
  Status failed_;
};

/// Beyond this a state is refused, read or written: it is no state, and nothing may take all memory for it.
inline constexpr size_t kMaxStateBytes = 64u << 20;

}  // namespace loam::commit
