// The input of an import: its beginning, a sample for the inference of fields, and then all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "deploy/cli/src/csv/source.h"

namespace loam::cli {

/// Size of the beginning, from which the import recognises the content and the delimiter.
inline constexpr size_t kBeginningBytes = 64 << 10;
/// Size of the sample of a pipe, from which the import infers the fields. The sample of a file is the whole file.
inline constexpr size_t kSampleBytes = 4 << 20;
/// Upper bound on the time for which the first row of a slow pipe waits for the rest of the beginning or of the sample.
inline constexpr uint64_t kSampleWaitNs = 500'000'000;

/// A file, compressed or not, or the standard input ("-"). Keeps in memory the part that is read more than once.
///
/// Owned and used by one thread. Memory: at most kSampleBytes.
class Input {
 public:
  /// Opens the input and reads its beginning. kNotFound: the file cannot be opened; kMalformed: damaged compressed
  /// data; kCancelled: the descriptor `stop` became readable (-1: no descriptor).
  static Result<std::unique_ptr<Input>> open(const std::string& path, int stop);
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  /// The first kBeginningBytes of the input. A slow pipe gives fewer: the bytes that arrived until its first row had
  /// waited for kSampleWaitNs. Valid until rows() is called.
  std::string_view beginning() const { return std::string_view(buffered_).substr(0, beginning_bytes_); }
  /// True if beginning() is the whole input.
  bool beginning_is_all() const { return beginning_is_all_; }

  /// The input from its first byte, for the inference of fields: a whole file, or kSampleBytes of a pipe. A slow pipe
  /// gives the bytes that arrived until a row had waited for kSampleWaitNs. `has_row` says whether the caller has read
  /// a row of the sample; the sample does not end before. Call at most once, before rows().
  Result<std::unique_ptr<ByteSource>> sample(std::function<bool()> has_row);
  /// False if the sample is shorter than the input. Known once the sample was read to its end.
  bool sample_is_all() const { return sample_is_all_; }

  /// The whole input from its first byte; call once. WaitOptions describes what read() does with the two functions
  /// while the input is silent.
  std::unique_ptr<ByteSource> rows(std::function<uint64_t()> deadline_ns, std::function<Status()> on_deadline);

  const std::string& name() const { return name_; }

 private:
  class Sample;

  Input(std::string path, int stop) : path_(std::move(path)) { waiting_.stop = stop; }
  Status read_beginning();
  // Reads at most `most` bytes into buffered_. 0 at the end of the input; kTimeout when the first row has waited long
  // enough.
  Result<size_t> read_more(size_t most);

  const std::string path_;
  WaitOptions waiting_;  // the source refers to it
  std::unique_ptr<ByteSource> source_;
  std::string name_;
  std::string buffered_;  // the bytes read from source_ before rows()
  size_t beginning_bytes_ = 0;
  bool beginning_is_all_ = false;
  bool sample_is_all_ = true;
  uint64_t sample_deadline_ns_ = 0;  // end of the wait of the first row; 0: there is no row yet
};

}  // namespace loam::cli
