// Sources of CSV text: a file, compressed or not, or the standard input.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace loam::cli {

/// A stream of bytes that is read once from the beginning. Owned and used by one thread; read() may block.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Reads at most into.size() bytes into the front of `into`. Returns their number; 0 at the end. Errors name the
  /// file.
  virtual Result<size_t> read(std::span<char> into) = 0;
  /// Bytes of the underlying file read so far. For a compressed file this is less than the sum of what read() returned.
  virtual uint64_t consumed_bytes() const = 0;
  /// Size of the underlying file; 0 for a pipe, whose size is unknown.
  virtual uint64_t total_bytes() const = 0;
  /// The name of the source in messages.
  virtual const std::string& name() const = 0;
};

/// What a source does while its input has no bytes; a pipe may be silent for hours.
struct WaitOptions {
  int stop = -1;                          ///< a descriptor; read() returns kCancelled once it is readable; -1: none
  std::function<uint64_t()> deadline_ns;  ///< when read() calls on_deadline(), on the clock of Env::now_ns(); 0: never
  std::function<Status()> on_deadline;    ///< read() returns its error; a later read() may continue
};

/// Opens a file, or the standard input for "-". Recognises gzip by content, not by name. read() blocks only until the
/// first byte arrives, and returns the bytes that are there. kNotFound, with the system's reason: the file cannot be
/// opened. `waiting` may be null; otherwise it outlives the source.
Result<std::unique_ptr<ByteSource>> open_source(const std::string& path, const WaitOptions* waiting = nullptr);

/// A source that returns `text`, which the caller has read from `rest` before, and then the bytes of `rest`.
std::unique_ptr<ByteSource> prepend(std::string text, std::unique_ptr<ByteSource> rest);

/// A source over a text in memory, for tests. Each read() returns at most `step` bytes.
std::unique_ptr<ByteSource> source_of_text(std::string text, size_t step = SIZE_MAX);

}  // namespace loam::cli
