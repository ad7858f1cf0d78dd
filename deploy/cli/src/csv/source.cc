// The byte sources of the reader: a descriptor, gzip over another source, a text, and a text before another source.
// open_source() combines them.
#include "deploy/cli/src/csv/source.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/base/env.h"

namespace loam::cli {
namespace {

/// Size of one read() of compressed input. 128 KiB needs half as many system calls as 64 KiB.
constexpr size_t kGzipBufferBytes = 128 * 1024;
constexpr std::string_view kGzipMagic = "\x1f\x8b";

Status unreadable(const std::string& name, std::string_view reason) {
  return {StatusCode::kMalformed, fmt::format("{} cannot be read: {}", name, reason)};
}

/// A source that reads a descriptor, which it owns.
class DescriptorSource final : public ByteSource {
 public:
  DescriptorSource(int descriptor, std::string name, uint64_t total, const WaitOptions* waiting)
      : descriptor_(descriptor), name_(std::move(name)), total_(total), waiting_(waiting) {}
  ~DescriptorSource() override { close(descriptor_); }
  DescriptorSource(const DescriptorSource&) = delete;
  DescriptorSource& operator=(const DescriptorSource&) = delete;

  Result<size_t> read(std::span<char> into) override {
    for (;;) {
      LOAM_RETURN_IF_ERROR(wait());
      const ssize_t got = ::read(descriptor_, into.data(), into.size());
      if (got >= 0) {
        taken_ += static_cast<uint64_t>(got);
        return static_cast<size_t>(got);
      }
      if (errno != EINTR && errno != EAGAIN) return unreadable(name_, std::strerror(errno));
    }
  }
  uint64_t consumed_bytes() const override { return taken_; }
  uint64_t total_bytes() const override { return total_; }
  const std::string& name() const override { return name_; }

 private:
  // Blocks until the descriptor has bytes or is at its end.
  Status wait() const {
    for (;;) {
      const uint64_t deadline_ns = waiting_ != nullptr && waiting_->deadline_ns ? waiting_->deadline_ns() : 0;
      const uint64_t now_ns = deadline_ns == 0 ? 0 : Env::now_ns();
      if (deadline_ns != 0 && deadline_ns <= now_ns) {
        LOAM_RETURN_IF_ERROR(waiting_->on_deadline());
        continue;
      }
      // poll() ignores a negative descriptor, so without `stop` it waits for the input alone.
      std::array<pollfd, 2> polled = {
          pollfd{descriptor_, POLLIN, 0},
          pollfd{waiting_ == nullptr ? -1 : waiting_->stop, POLLIN, 0},
      };
      const int ready = poll(polled.data(), polled.size(), deadline_ns == 0 ? -1 : milliseconds(deadline_ns - now_ns));
      if (polled[1].revents != 0) return {StatusCode::kCancelled, fmt::format("reading {} was interrupted", name_)};
      // An error of poll() also ends the wait: read() then blocks or reports the cause.
      if (polled[0].revents != 0 || (ready < 0 && errno != EINTR)) return ok_status();
    }
  }

  static int milliseconds(uint64_t ns) {
    constexpr uint64_t kNsPerMs = 1'000'000;
    return static_cast<int>(std::min<uint64_t>((ns + kNsPerMs - 1) / kNsPerMs, INT_MAX));
  }

  const int descriptor_;
  const std::string name_;
  const uint64_t total_;
  const WaitOptions* const waiting_;
  uint64_t taken_ = 0;
};

/// Decompresses `compressed`, one gzip member after another. Ignores bytes after the last member, as gzip does.
class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(std::unique_ptr<ByteSource> compressed)
      : compressed_(std::move(compressed)), buffer_(kGzipBufferBytes) {}
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  /// Allocates the decompressor; false if there is no memory.
  bool begin() {
    constexpr int kGzipOnly = 16;
    return inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK;
  }

  Result<size_t> read(std::span<char> into) override {
    const auto want = static_cast<unsigned>(std::min<size_t>(into.size(), 1u << 30));
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = want;
    while (stream_.avail_out == want && !ended_) LOAM_RETURN_IF_ERROR(step());
    return size_t{want - stream_.avail_out};
  }
  uint64_t consumed_bytes() const override { return compressed_->consumed_bytes(); }
  uint64_t total_bytes() const override { return compressed_->total_bytes(); }
  const std::string& name() const override { return compressed_->name(); }

 private:
  Status step() {
    if (stream_.avail_in == 0) {
      LOAM_ASSIGN_OR_RETURN(const size_t got, compressed_->read(buffer_));
      if (got == 0 && in_member_)
        return unreadable(name(), "the compressed data ends too early; the file is truncated");
      ended_ = got == 0;
      stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
      stream_.avail_in = static_cast<unsigned>(got);
      if (ended_) return ok_status();
    }
    // Between members: the next byte must begin another member. Everything else is padding.
    if (!in_member_ && *stream_.next_in != static_cast<Bytef>(kGzipMagic[0])) {
      ended_ = true;
      return ok_status();
    }
    in_member_ = true;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    // The end of a member. The file may have another one.
    if (code == Z_STREAM_END) {
      in_member_ = false;
      inflateReset(&stream_);
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return unreadable(name(), stream_.msg == nullptr ? "the compressed data is damaged" : stream_.msg);
    }
    return ok_status();
  }

  std::unique_ptr<ByteSource> compressed_;
  std::vector<char> buffer_;
  z_stream stream_{};
  bool in_member_ = false;
  bool ended_ = false;
};

class TextSource final : public ByteSource {
 public:
  TextSource(std::string text, size_t step) : text_(std::move(text)), step_(step) {}

  Result<size_t> read(std::span<char> into) override {
    const size_t count = std::min({into.size(), step_, text_.size() - at_});
    std::memcpy(into.data(), text_.data() + at_, count);
    at_ += count;
    return count;
  }
  uint64_t consumed_bytes() const override { return at_; }
  uint64_t total_bytes() const override { return text_.size(); }
  const std::string& name() const override { return name_; }

 private:
  std::string text_;
  std::string name_ = "text";
  size_t step_;
  size_t at_ = 0;
};

class PrependedSource final : public ByteSource {
 public:
  PrependedSource(std::string text, std::unique_ptr<ByteSource> rest)
      : text_(std::move(text)), rest_(std::move(rest)) {}

  Result<size_t> read(std::span<char> into) override {
    if (at_ == text_.size()) return rest_->read(into);
    const size_t count = std::min(into.size(), text_.size() - at_);
    std::memcpy(into.data(), text_.data() + at_, count);
    at_ += count;
    return count;
  }
  // The bytes of the text were read from `rest_` before, so `rest_` has counted them.
  uint64_t consumed_bytes() const override { return rest_->consumed_bytes(); }
  uint64_t total_bytes() const override { return rest_->total_bytes(); }
  const std::string& name() const override { return rest_->name(); }

 private:
  std::string text_;
  std::unique_ptr<ByteSource> rest_;
  size_t at_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> prepend(std::string text, std::unique_ptr<ByteSource> rest) {
  return std::make_unique<PrependedSource>(std::move(text), std::move(rest));
}

Result<std::unique_ptr<ByteSource>> open_source(const std::string& path, const WaitOptions* waiting) {
  const bool standard_input = path == "-";
  const std::string name = standard_input ? "the standard input" : path;
  // O_NONBLOCK, because open() of a FIFO would otherwise wait for a writer, and nothing could interrupt that wait.
  const int descriptor =
      standard_input ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return Status(StatusCode::kNotFound, fmt::format("{} cannot be opened: {}", name, std::strerror(errno)));
  }
  struct stat info{};
  if (fstat(descriptor, &info) == 0 && S_ISDIR(info.st_mode)) {
    close(descriptor);
    return Status(StatusCode::kNotFound, fmt::format("{} is a directory, not a file", name));
  }
  const uint64_t total = S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
  std::unique_ptr<ByteSource> source = std::make_unique<DescriptorSource>(descriptor, name, total, waiting);

  // Reads the first bytes to recognise gzip, and then puts them back before the rest, because a pipe cannot be read
  // twice.
  std::string head(kGzipBufferBytes, '\0');
  size_t filled = 0;
  while (filled < kGzipMagic.size()) {
    LOAM_ASSIGN_OR_RETURN(const size_t got, source->read(std::span(head).subspan(filled)));
    if (got == 0) break;
    filled += got;
  }
  head.resize(filled);
  const bool compressed = head.starts_with(kGzipMagic);
  source = prepend(std::move(head), std::move(source));
  if (!compressed) return source;
  auto gzip = std::make_unique<GzipSource>(std::move(source));
  if (!gzip->begin()) return Status(StatusCode::kInternal, fmt::format("{}: no memory for the decompressor", name));
  return std::unique_ptr<ByteSource>(std::move(gzip));
}

std::unique_ptr<ByteSource> source_of_text(std::string text, size_t step) {
  return std::make_unique<TextSource>(std::move(text), step);
}

}  // namespace loam::cli
