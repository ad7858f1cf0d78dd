// The files of a commit log, as the threads of CommitLogFile use them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "common/base/bytes.h"
#include "common/base/status.h"

namespace loam::commit {

/// When a commit counts as accepted, and so is answered and seen by later snapshots (`--commit-log`, R11, commit log
/// and restart of the commit manager).
enum class CommitLogMode : uint8_t {
  kNone,  ///< at once; the end of the process loses all commits
  kOs,    ///< when write() has returned; the commit survives the death of the process
  kSync,  ///< when flush() has returned; the commit survives a power cut
};

/// One file of the commit log, open for appending.
///
/// Threads: one thread at a time calls write() and reserve(). Another thread may call flush() at the same time.
class LogFile {
 public:
  virtual ~LogFile() = default;
  /// Appends bytes from the front of `rest` and removes the appended bytes from `rest`. Ok means that all bytes were
  /// appended. Appended bytes survive the death of the process. kNoSpace: the disk is full; the caller may append the
  /// remaining bytes later. After any other error the content of the file is unknown.
  virtual Status write(Bytes& rest) = 0;
  /// Allocates disk space, so that the file can grow to `bytes` without kNoSpace. kNoSpace: the disk has too little
  /// room now. The result is ok on a file system that cannot allocate ahead.
  virtual Status reserve(uint64_t bytes) = 0;
  /// Returns when all bytes that were written before the call are on the disk. After an error it is unknown which of
  /// them are.
  virtual Status flush() = 0;
};

/// The place of one commit log: the current file, and a new file beside it that will replace it.
///
/// Threads: read() returns before any other call. create() and replace() never run at the same time; both may run
/// while other threads use the files.
class LogDevice {
 public:
  virtual ~LogDevice() = default;
  /// Returns the bytes of the current file; nothing if no log exists yet. Deletes a new file that never replaced it.
  virtual Result<std::optional<Buffer>> read() = 0;
  /// Opens an empty new file beside the current one, and discards an earlier new file. kNoSpace: try again later.
  virtual Result<std::unique_ptr<LogFile>> create() = 0;
  /// Makes the new file the current one, in one atomic step even if the host loses power. Returns when the
  /// replacement is on the disk.
  virtual Status replace() = 0;
};

}  // namespace loam::commit
