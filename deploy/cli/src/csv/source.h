// Where CSV text comes from: a file, compressed or not, or the standard input.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace loam::cli {

/// A stream of bytes, read once from the beginning. Owned and used by one thread; read() may block.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Fills the front of `into` and returns how many bytes it got; 0 is the end. Errors name the file.
  virtual Result<size_t> read(std::span<char> into) = 0;
  /// Bytes of the underlying file that have been taken so far; with compression that is less than what read() gave.
  virtual uint64_t taken_bytes() const = 0;
  /// Size of the underlying file; 0 if that is unknown (a pipe).
  virtual uint64_t total_bytes() const = 0;
  /// For messages.
  virtual const std::string& name() const = 0;
};

/// What a source does while its input has nothing to give; a pipe may be silent for hours.
struct Waiting {
  int stop = -1;                     ///< a descriptor; once it is readable, read() ends with kCancelled; -1: none
  std::function<uint64_t()> due_ns;  ///< when on_due() is to be called, as Env::now_ns() counts; 0: never
  std::function<Status()> on_due;    ///< called by read(); its error ends that read(), and a later one may go on
};

/// Opens `path`; "-" is the standard input. gzip is recognised by its content, not by the name. read() waits
/// for the first byte only, and gives the bytes that have come. A file that cannot be opened is kNotFound, with the
/// system's reason. `waiting` may be null, else it outlives the source.
Result<std::unique_ptr<ByteSource>> open_source(const std::string& path, const Waiting* waiting = nullptr);

/// A source that first gives `text`, which was read from `rest` before, and then the rest.
std::unique_ptr<ByteSource> prepend(std::string text, std::unique_ptr<ByteSource> rest);

/// Text in memory, for tests; gives at most `step` bytes at a time.
std::unique_ptr<ByteSource> source_of_text(std::string text, size_t step = SIZE_MAX);

}  // namespace loam::cli
