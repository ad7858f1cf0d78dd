// The disk under the commit log, as the threads of CommitLogFile use it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "common/base/bytes.h"
#include "common/base/status.h"

namespace loam::commit {

/// When a commit counts as accepted (`--commit-log`).
enum class CommitLogMode : uint8_t {
  kNone,  ///< at once: nothing outlives the process
  kOs,    ///< when write() has returned: it survives the death of the process
  kSync,  ///< when it is on the disk: it survives a loss of power
};

/// Role: one file of the commit log, open for appending.
///
/// Threads: write() and reserve() by one thread at a time; flush() by another one at the same time.
class LogFile {
 public:
  virtual ~LogFile() = default;
  /// Appends bytes from the front of `rest`, and takes off `rest` those that are appended. Ok: all of them. They
  /// outlive the process. kNoSpace: the disk is full, the remaining bytes can be written later. After another error the
  /// file's content is not known.
  virtual Status write(Bytes& rest) = 0;
  /// Takes room on the disk, so that the file can grow to `bytes` without kNoSpace. kNoSpace: there is not enough room
  /// now. A file system that cannot take room ahead answers ok.
  virtual Status reserve(uint64_t bytes) = 0;
  /// Returns when all that was written before the call is on the disk. After an error it is not known how much of it
  /// is.
  virtual Status flush() = 0;
};

/// Role: the place of one commit log: the log itself, and a new one beside it that is going to replace it.
///
/// Threads: create() and replace() never at the same time, but beside any use of the files; read() before them.
class LogDevice {
 public:
  virtual ~LogDevice() = default;
  /// The bytes of the log; nothing if there is no log yet. Removes a new log that did not become the log.
  virtual Result<std::optional<Buffer>> read() = 0;
  /// Opens an empty new log beside the log; one that was begun before is dropped. kNoSpace: later.
  virtual Result<std::unique_ptr<LogFile>> create() = 0;
  /// The new log takes the place of the log, in one step even if the host loses power. Returns when this is on the
  /// disk.
  virtual Status replace() = 0;
};

}  // namespace loam::commit
