// The input of an import: its beginning, a sample to guess the fields from, and then all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "deploy/cli/src/csv/source.h"

namespace loam::cli {

/// Bytes of the beginning, from which the content and the delimiter are recognised.
inline constexpr size_t kBeginningBytes = 64 << 10;
/// Bytes of a pipe's sample, from which the fields are guessed; of a file all is read.
inline constexpr size_t kSampleBytes = 4 << 20;
/// The longest that the first row of a slow pipe waits for the rest of the beginning, or of the sample.
inline constexpr uint64_t kSampleWaitNs = 500'000'000;

/// Opens a file, compressed or not, or the standard input ("-"), and keeps of it what has to be read more than once.
///
/// Owned and used by one thread. Memory: kSampleBytes at most.
class Input {
 public:
  /// Reads the beginning. kNotFound (the file), kMalformed (damaged compressed data), or kCancelled once the descriptor
  /// `stop` is readable; -1: no descriptor.
  static Result<std::unique_ptr<Input>> open(const std::string& path, int stop);
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  /// The first kBeginningBytes of the input; of a slow pipe, what came until its first row had waited for
  /// kSampleWaitNs. Valid until rows() is called.
  std::string_view beginning() const { return std::string_view(kept_).substr(0, beginning_bytes_); }
  bool beginning_is_all() const { return beginning_is_all_; }

  /// The input from its first byte, to guess the fields from: all of a file; of a pipe kSampleBytes, or what came until
  /// a row had waited for kSampleWaitNs. `has_row` says whether a row was read of the sample: there is no end before.
  /// At most one sample is read, before rows().
  Result<std::unique_ptr<ByteSource>> sample(std::function<bool()> has_row);
  /// False if the sample ended before the input; known when the sample was read.
  bool sample_is_all() const { return sample_is_all_; }

  /// The input from its first byte, once. What its read() does while it waits is up to the caller, see Waiting.
  std::unique_ptr<ByteSource> rows(std::function<uint64_t()> due_ns, std::function<Status()> on_due);

  const std::string& name() const { return name_; }

 private:
  class Sample;

  Input(std::string path, int stop) : path_(std::move(path)) { waiting_.stop = stop; }
  Status read_beginning();
  // Reads at most `most` bytes into kept_; 0 is the end of the input, kTimeout the end of waiting.
  Result<size_t> read_more(size_t most);

  const std::string path_;
  Waiting waiting_;  // the source refers to it
  std::unique_ptr<ByteSource> source_;
  std::string name_;
  std::string kept_;  // all that was read of source_ before rows()
  size_t beginning_bytes_ = 0;
  bool beginning_is_all_ = false;
  bool sample_is_all_ = true;
  uint64_t sample_due_ns_ = 0;  // when the first row has waited long enough; 0: there is no row yet
};

}  // namespace loam::cli
