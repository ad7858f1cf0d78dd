// A folder with a commit log in it.
#pragma once

#include <memory>
#include <string>

#include <loam/commit/log_device.h>

namespace loam::commit {

/// Role: keeps the commit log in `FOLDER/commit-log`. A new one is written to `commit-log.new` and renamed over it.
///
/// Room is taken by fallocate() with FALLOC_FL_KEEP_SIZE, so the length of the file is that of its content. flush() is
/// fdatasync().
///
/// Owner: CommitLogFile. The folder is this process's alone (StateFile locks it). Threads: see LogDevice.
class LogFolder final : public LogDevice {
 public:
  /// The folder exists. kInvalidArgument: it cannot be opened.
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
