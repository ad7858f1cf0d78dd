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

/// Opens a missing descriptor of the three so that using it fails with EBADF: the caller has said that there is none.
void open_missing_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is `fd` itself. Without /dev/null there is nothing to open and nowhere to say so.
    static_cast<void>(open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Before the initializers of shared libraries, not only before main(): gRPC's open an eventfd. Sanitizers cannot run
// instrumented code so early; their programs rely on the constructor of StandardStreams.
void before_all(int, char**, char**) { open_missing_descriptors(); }
__attribute__((section(".preinit_array"), used)) void (*const kBeforeAll)(int, char**, char**) = before_all;
#endif

}  // namespace

/// Writes to a descriptor and keeps the first error. Threads: those of the stream, which are one at a time.
class StandardStreams::Buffer final : public std::streambuf {
 public:
  /// `whole_lines`: writes at each end of a line, because somebody is watching.
  Buffer(std::ostream& stream, int fd, bool whole_lines)
      : stream_(stream), fd_(fd), whole_lines_(whole_lines), replaced_(stream.rdbuf(this)) {
    setp(waiting_.data(), waiting_.data() + waiting_.size());
  }
  ~Buffer() override {
    sync();
    stream_.rdbuf(replaced_);
  }

  /// The first error, an errno; 0 if there is none.
  int error() const { return error_; }

  /// Writes what waits, and asks the file system for errors that it tells at the end only.
  void finish() {
    sync();
    if (error_ != 0 || !used_) return;
    const int copy = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    if (copy >= 0 && close(copy) != 0) error_ = errno;
  }

 protected:
  int_type overflow(int_type c) override {
    if (sync() != 0) return traits_type::eof();
    if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }

  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const std::string_view given(text, static_cast<size_t>(size));
    if (given.size() > static_cast<size_t>(epptr() - pptr()) && sync() != 0) return 0;
    if (given.size() > waiting_.size()) {
      write_all(given);
    } else {
      std::memcpy(pptr(), given.data(), given.size());
      pbump(static_cast<int>(given.size()));
      if (whole_lines_ && given.find('\n') != std::string_view::npos) sync();
    }
    return error_ == 0 ? size : 0;
  }

  int sync() override {
    write_all({pbase(), static_cast<size_t>(pptr() - pbase())});
    setp(waiting_.data(), waiting_.data() + waiting_.size());
    return error_ == 0 ? 0 : -1;
  }

 private:
  void write_all(std::string_view text) {
    used_ = used_ || !text.empty();
    while (!text.empty() && error_ == 0) {
      const ssize_t written = write(fd_, text.data(), text.size());
      if (written >= 0) {
        text.remove_prefix(static_cast<size_t>(written));
      } else if (errno == EAGAIN) {
        pollfd room{fd_, POLLOUT, 0};  // a pipe that another program has set so
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
  std::streambuf* const replaced_;
  std::array<char, kWaitingBytes> waiting_;
  bool used_ = false;
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
