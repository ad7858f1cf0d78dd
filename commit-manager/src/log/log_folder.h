// The folder that contains the files of the commit log.
#pragma once

#include <memory>
#include <string>

#include <loam/commit/log_device.h>

namespace loam::commit {

/// Keeps the commit log in `FOLDER/commit-log`. A new file is `commit-log.new`; replace() renames it to `commit-log`.
///
/// reserve() calls fallocate() with FALLOC_FL_KEEP_SIZE, so the length of the file is that of its content. flush()
/// calls fdatasync().
///
/// Owner: CommitLogFile. Only this process uses the folder (StateFile locks it). Threads: see LogDevice.
class LogFolder final : public LogDevice {
 public:
  /// Opens a folder that exists. kInvalidArgument: it cannot be opened.
  static Result<std::unique_ptr<LogFolder>> open(const std::string& folder);
  ~LogFolder() override;
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;

  Result<std::optional<Buffer>> read() override;
  Result<std::unique_ptr<LogFile>> create() override;
  Status replace() override;

 private:
  LogFolder(std::string folder, int descriptor);

  Status flush_folder();

  const std::string folder_;
  const int descriptor_;
};

}  // namespace loam::commit
