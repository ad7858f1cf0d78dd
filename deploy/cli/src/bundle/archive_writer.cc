#include "deploy/cli/src/bundle/archive_writer.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace loam::cli {

struct ArchiveWriter::Impl {
  std::string path;
  int fd = -1;
  bool created = false;  // the file did not exist before, and is not complete
  archive* writer = archive_write_new();

  /// The error of the last call of libarchive.
  Status failed() const {
    const int error = archive_errno(writer);
    const char* const why = archive_error_string(writer);
    return cannot_write(error != 0 ? std::strerror(error) : why != nullptr ? why : "unknown error");
  }
  Status cannot_write(const char* why) const {
    return {StatusCode::kNoSpace, "the archive " + path + " cannot be written: " + why};
  }
};

ArchiveWriter::ArchiveWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ArchiveWriter::~ArchiveWriter() {
  archive_write_free(impl_->writer);
  if (impl_->fd >= 0) ::close(impl_->fd);
  if (impl_->created) ::unlink(impl_->path.c_str());
}

Result<std::unique_ptr<ArchiveWriter>> ArchiveWriter::open(const std::string& path) {
  std::unique_ptr<ArchiveWriter> made(new ArchiveWriter(std::make_unique<Impl>()));
  Impl& impl = *made->impl_;
  impl.path = path;
  constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;
  impl.fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kOwnerOnly);
  impl.created = impl.fd >= 0;
  if (impl.fd < 0 && errno == EEXIST) impl.fd = ::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (impl.fd < 0) {
    return Status(StatusCode::kInvalidArgument, "cannot write " + path + ": " + std::strerror(errno));
  }
  archive* const writer = impl.writer;
  if (archive_write_add_filter_gzip(writer) != ARCHIVE_OK ||
      archive_write_set_format_pax_restricted(writer) != ARCHIVE_OK ||
      archive_write_open_fd(writer, impl.fd) != ARCHIVE_OK) {
    return impl.failed();
  }
  return made;
}

Status ArchiveWriter::add(const std::string& name, std::string_view content) {
  const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new(), &archive_entry_free);
  archive_entry_set_pathname(entry.get(), name.c_str());
  archive_entry_set_size(entry.get(), static_cast<int64_t>(content.size()));
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), S_IRUSR | S_IWUSR);
  archive_entry_set_mtime(entry.get(), std::time(nullptr), 0);
  if (archive_write_header(impl_->writer, entry.get()) != ARCHIVE_OK ||
      archive_write_data(impl_->writer, content.data(), content.size()) != static_cast<la_ssize_t>(content.size())) {
    return impl_->failed();
  }
  return ok_status();
}

Result<uint64_t> ArchiveWriter::finish() {
  if (archive_write_close(impl_->writer) != ARCHIVE_OK) return impl_->failed();
  struct stat state{};
  // A device or a pipe has nothing to flush (EINVAL).
  const bool flushed = ::fsync(impl_->fd) == 0 || errno == EINVAL;
  if (!flushed || ::fstat(impl_->fd, &state) != 0 || ::close(std::exchange(impl_->fd, -1)) != 0) {
    return impl_->cannot_write(std::strerror(errno));
  }
  impl_->created = false;
  return static_cast<uint64_t>(state.st_size);
}

}  // namespace loam::cli
