// The state as a file: lock of the folder, read at the start, replacement by write, flush, rename and flush.
// durable_state.cc defines the bytes, and state_writer.cc calls store() on a thread of its own.
#include "commit-manager/src/store/state_file.h"

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commit-manager/src/log/log_folder.h"
#include "common/base/env.h"
#include "common/base/log.h"

namespace loam::commit {
namespace {

constexpr const char* kState = "state";
constexpr const char* kNewState = "state.new";
constexpr const char* kLock = "lock";

std::string why(int error) { return std::generic_category().message(error); }

/// A descriptor that is closed at the end of its scope.
struct Descriptor {
  explicit Descriptor(int number) : value(number) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  const int value;
};

/// Returns false with the reason in errno.
bool write_all(int file, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

Result<Buffer> read_all(int file, const std::string& path) {
  struct stat found{};
  if (::fstat(file, &found) != 0) return Status(StatusCode::kInternal, path + " cannot be read: " + why(errno));
  if (found.st_size < 0 || static_cast<uint64_t>(found.st_size) > kMaxStateBytes) {
    return Status(StatusCode::kInternal, path + " is too large to be a commit manager's state");
  }
  Buffer bytes(static_cast<size_t>(found.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(file, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status(StatusCode::kInternal, path + " cannot be read: " + why(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

Result<std::unique_ptr<StateFile>> StateFile::open(const std::string& folder) {
  // Step 1: the folder. A new folder gets mode 0700, so that only its owner may read it.
  if (::mkdir(folder.c_str(), 0700) == 0) {
    // The entry of the new folder in its parent must survive a power cut too.
    const std::filesystem::path parent = std::filesystem::absolute(folder).lexically_normal().parent_path();
    const Descriptor above(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (above.value < 0 || ::fsync(above.value) != 0) {
      return Status(StatusCode::kInvalidArgument, "folder " + folder + " cannot be flushed to the disk: " + why(errno));
    }
  } else if (errno != EEXIST) {
    return Status(StatusCode::kInvalidArgument, "folder " + folder + " cannot be made: " + why(errno));
  }
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return Status(StatusCode::kInvalidArgument, "folder " + folder + ": " + why(errno));
  // Step 2: the lock. The file is opened without O_TRUNC: it contains the process id of the present owner, which the
  // message below names.
  const int lock = ::openat(descriptor, kLock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) {
    const int error = errno;
    ::close(descriptor);
    return Status(StatusCode::kInvalidArgument, "folder " + folder + " cannot be written: " + why(error));
  }
  // Owns both descriptors from here on.
  std::unique_ptr<StateFile> file(new StateFile(folder, descriptor, lock));
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 32> owner{};
    const ssize_t size = ::pread(lock, owner.data(), owner.size() - 1, 0);
    return Status(StatusCode::kUnavailable, "folder " + folder + " is in use by another commit manager" +
                                                (size > 0 ? ", process " + std::string(owner.data()) : std::string()) +
                                                "; stop it first, or give this one a folder of its own");
  }
  const std::string self = std::to_string(::getpid());
  if (::ftruncate(lock, 0) != 0 || ::pwrite(lock, self.data(), self.size(), 0) < 0) {
    return Status(StatusCode::kInvalidArgument, "folder " + folder + " cannot be written: " + why(errno));
  }
  // Step 3: the state, which no other commit manager can replace from here on.
  LOAM_RETURN_IF_ERROR(file->read());
  return file;
}

StateFile::StateFile(std::string folder, int folder_descriptor, int lock)
    : folder_(std::move(folder)), folder_descriptor_(folder_descriptor), lock_(lock) {}

StateFile::~StateFile() {
  ::close(lock_);  // and unlocks
  ::close(folder_descriptor_);
}

Status StateFile::read() {
  const std::string path = folder_ + "/" + kState;
  // A crash has left it before the rename. No reply that depends on it was sent.
  if (::unlinkat(folder_descriptor_, kNewState, 0) == 0) {
    log_info("state.leftover_removed",
             "removed " + folder_ + "/" + kNewState + ", left by a commit manager that died during the write",
             {{"folder", folder_}});
  } else if (errno != ENOENT) {
    return {StatusCode::kInvalidArgument, "folder " + folder_ + " cannot be written: " + why(errno)};
  }
  const Descriptor file(::openat(folder_descriptor_, kState, O_RDONLY | O_CLOEXEC));
  if (file.value < 0) {
    if (errno == ENOENT) return ok_status();
    return {StatusCode::kInternal, path + " cannot be read: " + why(errno)};
  }
  LOAM_ASSIGN_OR_RETURN(loaded_state_, read_all(file.value, path));
  // An empty file is not a new cluster: a new cluster would give out the same ids again.
  if (loaded_state_.empty()) return {StatusCode::kInternal, path + " is empty; restore it from a copy"};
  return ok_status();
}

Result<std::unique_ptr<LogDevice>> StateFile::log_device() {
  LOAM_ASSIGN_OR_RETURN(std::unique_ptr<LogDevice> folder, LogFolder::open(folder_));
  return folder;
}

Status StateFile::store(Bytes state) {
  // After a failure it is unknown which state the disk has. A later success would hide that.
  LOAM_RETURN_IF_ERROR(failed_);
  Env::pause_point("manager.durable.before");
  failed_ = replace(state);
  LOAM_RETURN_IF_ERROR(failed_);
  Env::pause_point("manager.durable.after");
  return ok_status();
}

Status StateFile::replace(Bytes state) {
  if (state.empty() || state.size() > kMaxStateBytes) {
    return {StatusCode::kInternal, "a state of " + std::to_string(state.size()) + " bytes is impossible"};
  }
  // The order is what makes the replacement atomic. The new file is on the disk before it gets the name of the state,
  // so the name never leads to a part of a state. The rename is on the disk before the core hears of it (R11, commit
  // log and restart of the commit manager).
  LOAM_RETURN_IF_ERROR(write_beside(state));
  Env::pause_point("manager.durable.written");
  if (::renameat(folder_descriptor_, kNewState, folder_descriptor_, kState) != 0) {
    return {StatusCode::kInternal, folder_ + "/" + kNewState + " cannot replace the old state: " + why(errno)};
  }
  Env::pause_point("manager.durable.renamed");
  if (::fsync(folder_descriptor_) != 0) {
    return {StatusCode::kInternal, "folder " + folder_ + " cannot be flushed to the disk: " + why(errno)};
  }
  return ok_status();
}

Status StateFile::write_beside(Bytes state) {
  const Descriptor file(::openat(folder_descriptor_, kNewState, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const bool written = file.value >= 0 && write_all(file.value, state);
  if (written) Env::pause_point("manager.durable.beside");
  if (written && ::fdatasync(file.value) == 0) return ok_status();
  // A state.new that is left here does no harm: the next open() removes it.
  const int error = errno;
  const bool full = error == ENOSPC || error == EDQUOT;
  return {full ? StatusCode::kNoSpace : StatusCode::kInternal,
          folder_ + "/" + kNewState + " cannot be written: " + why(error) + (full ? "; make room on that disk" : "")};
}

}  // namespace loam::commit
