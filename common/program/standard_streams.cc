#include "common/program/standard_streams.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <streambuf>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace loam::program {
namespace {

/// Opens each of the three descriptors that is missing, such that each use of it fails with EBADF. The caller of the
/// program has closed it, so a read or write must not succeed.
void open_missing_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() returns the lowest free number, which is `fd`. If there is no /dev/null, the descriptor stays missing;
    // there is no place to report that.
    static_cast<void>(open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The descriptors must be open before the initializers of shared libraries run, because those of gRPC open an eventfd.
// Instrumented code cannot run so early, so sanitizer builds rely on the constructor of StandardStreams.
void before_all(int, char**, char**) { open_missing_descriptors(); }
__attribute__((section(".preinit_array"), used)) void (*const kBeforeAll)(int, char**, char**) = before_all;
#endif

}  // namespace

/// The buffer of one stream: writes to a descriptor and keeps the first error. Threads: one at a time.
class StandardStreams::Buffer final : public std::streambuf {
 public:
  /// `whole_lines`: writes at each end of a line, for a person at a terminal.
  Buffer(std::ostream& stream, int fd, bool whole_lines)
      : stream_(stream), fd_(fd), whole_lines_(whole_lines), replaced_(stream.rdbuf(this)) {
    setp(waiting_.data(), waiting_.data() + waiting_.size());
  }
  ~Buffer() override {
    sync();
    stream_.rdbuf(replaced_);
  }

  /// The first error as an errno; 0 if there was none.
  int error() const { return error_; }

  /// Writes the buffered bytes. Then closes a copy of the descriptor, because some file systems, such as NFS, report
  /// write errors at close() only.
  void finish() {
    sync();
    if (error_ != 0 || !used_) return;
    const int copy = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    if (copy >= 0 && close(copy) != 0) error_ = errno;
  }

 protected:
  // std::streambuf. The stream calls overflow() for a character that does not fit into the buffer, xsputn() for a text,
  // and sync() at a flush. A failure makes the stream bad.
  int_type overflow(int_type c) override {
    if (sync() != 0) return traits_type::eof();
    if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }

  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const std::string_view output(text, static_cast<size_t>(size));
    if (output.size() > static_cast<size_t>(epptr() - pptr()) && sync() != 0) return 0;
    // A text larger than the buffer is written directly. Any other fits, after the buffer was written.
    if (output.size() > waiting_.size()) {
      write_all(output);
    } else {
      std::memcpy(pptr(), output.data(), output.size());
      pbump(static_cast<int>(output.size()));
      if (whole_lines_ && output.find('\n') != std::string_view::npos) sync();
    }
    return error_ == 0 ? size : 0;
  }

  int sync() override {
    write_all({pbase(), static_cast<size_t>(pptr() - pbase())});
    setp(waiting_.data(), waiting_.data() + waiting_.size());
    return error_ == 0 ? 0 : -1;
  }

 private:
  /// Writes the whole text, unless there is an error. Waits if the descriptor is non-blocking and full.
  void write_all(std::string_view text) {
    used_ = used_ || !text.empty();
    while (!text.empty() && error_ == 0) {
      const ssize_t written = write(fd_, text.data(), text.size());
      if (written >= 0) {
        text.remove_prefix(static_cast<size_t>(written));
      } else if (errno == EAGAIN) {
        pollfd room{fd_, POLLOUT, 0};  // another program that shares the pipe has made it non-blocking
        static_cast<void>(poll(&room, 1, -1));
      } else if (errno != EINTR) {
        error_ = errno;
      }
    }
  }

  static constexpr size_t kWaitingBytes = 64 * 1024;

  std::ostream& stream_;
  const int fd_;
  const bool whole_lines_;
  std::streambuf* const replaced_;  // the buffer of the stream before; the destructor restores it
  std::array<char, kWaitingBytes> waiting_;
  bool used_ = false;  // whether anything was written
  int error_ = 0;
};

StandardStreams::StandardStreams() {
  open_missing_descriptors();
  out_ = std::make_unique<Buffer>(std::cout, STDOUT_FILENO, isatty(STDOUT_FILENO) == 1);
  error_ = std::make_unique<Buffer>(std::cerr, STDERR_FILENO, true);
}

StandardStreams::~StandardStreams() = default;

Status StandardStreams::finish() {
  out_->finish();
  error_->finish();
  const auto lost = [](const char* what, int error) {
    const char* const name = strerrorname_np(error);
    return Status(StatusCode::kInternal, std::string("the standard ") + what +
                                             " cannot be written: " + std::strerror(error) +
                                             (name != nullptr ? std::string(" (") + name + ")" : ""));
  };
  if (out_->error() != 0) return lost("output", out_->error());
  if (error_->error() != 0) return lost("error", error_->error());
  return ok_status();
}

}  // namespace loam::program
