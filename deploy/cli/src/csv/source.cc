#include "deploy/cli/src/csv/source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

namespace loam::cli {
namespace {

/// zlib's own buffer; 128 KiB halves the system calls of its default.
constexpr unsigned kGzipBufferBytes = 128 * 1024;

class FileSource final : public ByteSource {
 public:
  FileSource(gzFile file, std::string name, uint64_t total) : file_(file), name_(std::move(name)), total_(total) {}
  ~FileSource() override { gzclose(file_); }

  Result<size_t> read(std::span<char> into) override {
    const auto want = static_cast<unsigned>(std::min<size_t>(into.size(), 1u << 30));
    const int got = gzread(file_, into.data(), want);
    if (got > 0) return static_cast<size_t>(got);
    int code = Z_OK;
    const char* reason = gzerror(file_, &code);
    if (got == 0 && code == Z_OK) return size_t{0};
    if (code == Z_ERRNO) reason = std::strerror(errno);
    if (code == Z_BUF_ERROR) reason = "the compressed data ends too early; the file is truncated";
    return Status(StatusCode::kMalformed, fmt::format("{} cannot be read: {}", name_, reason));
  }
  uint64_t taken_bytes() const override {
    const auto at = gzoffset(file_);
    return at < 0 ? 0 : static_cast<uint64_t>(at);
  }
  uint64_t total_bytes() const override { return total_; }
  const std::string& name() const override { return name_; }

 private:
  gzFile file_;
  std::string name_;
  uint64_t total_;
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
  uint64_t taken_bytes() const override { return at_; }
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
  uint64_t taken_bytes() const override { return rest_->taken_bytes(); }
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

Result<std::unique_ptr<ByteSource>> open_source(const std::string& path) {
  const bool standard_input = path == "-";
  const std::string name = standard_input ? "the standard input" : path;
  const int descriptor = standard_input ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return Status(StatusCode::kNotFound, fmt::format("{} cannot be opened: {}", name, std::strerror(errno)));
  }
  struct stat info{};
  if (fstat(descriptor, &info) == 0 && S_ISDIR(info.st_mode)) {
    close(descriptor);
    return Status(StatusCode::kNotFound, fmt::format("{} is a directory, not a file", name));
  }
  gzFile file = gzdopen(descriptor, "rb");
  if (file == nullptr) {
    close(descriptor);
    return Status(StatusCode::kInternal, fmt::format("{}: no memory for the decompressor", name));
  }
  gzbuffer(file, kGzipBufferBytes);
  const uint64_t total = S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
  return std::unique_ptr<ByteSource>(std::make_unique<FileSource>(file, name, total));
}

std::unique_ptr<ByteSource> source_of_text(std::string text, size_t step) {
  return std::make_unique<TextSource>(std::move(text), step);
}

}  // namespace loam::cli
