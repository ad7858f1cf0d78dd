// The system calls of the commit log and their error messages. commit_log_file.cc and commit_log_writer.cc decide when
// each is made.
#include "commit-manager/src/log/log_folder.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/env.h"

namespace loam::commit {
namespace {

constexpr const char* kLog = "commit-log";
constexpr const char* kNewLog = "commit-log.new";

/// Returns the status of a failed system call. A used-up quota is treated like a full disk: both may end.
Status failed(const std::string& path, const std::string& what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return {full ? StatusCode::kNoSpace : StatusCode::kInternal,
          path + " cannot be " + what + ": " + std::generic_category().message(error)};
}

/// Repeats a system call that a signal has interrupted.
template <class Call>
auto repeated(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

class File final : public LogFile {
 public:
  File(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  ~File() override { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// Continues after a short write, so bytes stay in `rest` only after an error.
  Status write(Bytes& rest) override {
    while (!rest.empty()) {
      const ssize_t written = repeated([&] { return ::write(descriptor_, rest.data(), rest.size()); });
      if (written < 0) return failed(path_, "written", errno);
      rest = rest.subspan(static_cast<size_t>(written));
    }
    return ok_status();
  }
  Status reserve(uint64_t bytes) override {
    const auto size = static_cast<off_t>(bytes);
    if (repeated([&] { return ::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, size); }) == 0) return ok_status();
    // Without preallocation a full disk shows in write(), which the caller handles too.
    if (errno == EOPNOTSUPP || errno == ENOSYS) return ok_status();
    return failed(path_, "given room for " + std::to_string(bytes) + " bytes", errno);
  }
  Status flush() override {
    // fdatasync() flushes the length of the file too, which is all that a reader needs of its metadata.
    if (repeated([&] { return ::fdatasync(descriptor_); }) == 0) return ok_status();
    // Never kNoSpace, which callers retry: after a failed flush the kernel may have dropped the pages.
    return {StatusCode::kInternal, std::string(failed(path_, "flushed to the disk", errno).message())};
  }

 private:
  const std::string path_;
  const int descriptor_;
};

Result<Buffer> read_all(int descriptor, const std::string& path) {
  struct stat found{};
  if (::fstat(descriptor, &found) != 0) return failed(path, "read", errno);
  if (!S_ISREG(found.st_mode)) return Status(StatusCode::kInternal, path + " cannot be read: it is not a regular file");
  Buffer bytes(static_cast<size_t>(found.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = repeated([&] { return ::read(descriptor, bytes.data() + done, bytes.size() - done); });
    if (got < 0) return failed(path, "read", errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

Result<std::unique_ptr<LogFolder>> LogFolder::open(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    return Status(StatusCode::kInvalidArgument, "folder " + folder + ": " + std::generic_category().message(errno));
  }
  return std::unique_ptr<LogFolder>(new LogFolder(folder, descriptor));
}

LogFolder::LogFolder(std::string folder, int descriptor) : folder_(std::move(folder)), descriptor_(descriptor) {}

LogFolder::~LogFolder() { ::close(descriptor_); }

Result<std::optional<Buffer>> LogFolder::read() {
  // A new file is here if a crash has ended a rewrite before its rename. The log is complete without it.
  if (::unlinkat(descriptor_, kNewLog, 0) != 0 && errno != ENOENT) {
    return failed(folder_ + "/" + kNewLog, "removed", errno);
  }
  const std::string path = folder_ + "/" + kLog;
  const int file = ::openat(descriptor_, kLog, O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    if (errno == ENOENT) return std::optional<Buffer>();
    return failed(path, "read", errno);
  }
  Result<Buffer> bytes = read_all(file, path);
  ::close(file);
  if (!bytes.ok()) return bytes.status();
  return std::optional<Buffer>(std::move(bytes).value());
}

Result<std::unique_ptr<LogFile>> LogFolder::create() {
  const std::string path = folder_ + "/" + kNewLog;
  const int descriptor = ::openat(descriptor_, kNewLog, O_WRONLY | O_APPEND | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) return failed(path, "created", errno);
  // Messages name the file as it is called after replace().
  return std::unique_ptr<LogFile>(std::make_unique<File>(folder_ + "/" + kLog, descriptor));
}

Status LogFolder::replace() {
  if (::renameat(descriptor_, kNewLog, descriptor_, kLog) != 0) {
    return failed(folder_ + "/" + kNewLog, "renamed to " + std::string(kLog), errno);
  }
  // The names are content of the folder, so only its flush makes the rename survive a power cut.
  Env::pause_point("manager.log.renamed");
  return flush_folder();
}

Status LogFolder::flush_folder() {
  if (repeated([&] { return ::fsync(descriptor_); }) == 0) return ok_status();
  return failed("folder " + folder_, "flushed to the disk", errno);
}

}  // namespace loam::commit
