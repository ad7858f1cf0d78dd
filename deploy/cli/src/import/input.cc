// Reads the input once and keeps the bytes that are read again: the beginning, and the sample of a pipe. csv/source.cc
// reads and decompresses.
#include "deploy/cli/src/import/input.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/env.h"

namespace loam::cli {

/// The sample of a pipe: the bytes that Input has kept, then further bytes, which Input keeps, too.
class Input::Sample final : public ByteSource {
 public:
  Sample(Input& input, std::function<bool()> has_row) : input_(input), has_row_(std::move(has_row)) {}

  Result<size_t> read(std::span<char> into) override {
    while (at_ == input_.buffered_.size()) {
      LOAM_ASSIGN_OR_RETURN(const bool more, read_more(into.size()));
      if (!more) return size_t{0};
    }
    const size_t count = std::min(into.size(), input_.buffered_.size() - at_);
    std::memcpy(into.data(), input_.buffered_.data() + at_, count);
    at_ += count;
    return count;
  }
  uint64_t consumed_bytes() const override { return at_; }
  uint64_t total_bytes() const override { return 0; }
  const std::string& name() const override { return input_.name_; }

 private:
  // Returns false at the end of the sample.
  Result<bool> read_more(size_t most) {
    if (input_.beginning_is_all_) return false;
    // True only after the end of the input was seen: the other returns may leave bytes unread.
    input_.sample_is_all_ = false;
    if (input_.buffered_.size() >= kSampleBytes) return false;
    // A sample without a row is useless, so the time limit begins with the first row.
    if (!has_row_()) input_.sample_deadline_ns_ = 0;
    if (has_row_() && input_.sample_deadline_ns_ == 0) input_.sample_deadline_ns_ = Env::now_ns() + kSampleWaitNs;
    const auto got = input_.read_more(std::min(most, kSampleBytes - input_.buffered_.size()));
    if (got.code() == StatusCode::kTimeout) return false;
    if (!got.ok()) return got.status();
    input_.sample_is_all_ = *got == 0;
    return *got > 0;
  }

  Input& input_;
  const std::function<bool()> has_row_;
  size_t at_ = 0;
};

Result<std::unique_ptr<Input>> Input::open(const std::string& path, int stop) {
  std::unique_ptr<Input> input(new Input(path, stop));
  LOAM_RETURN_IF_ERROR(input->read_beginning());
  return input;
}

Status Input::read_beginning() {
  // The deadline is 0, that is, none, until a row is there: an import may wait any time for its first row.
  waiting_.deadline_ns = [this] { return sample_deadline_ns_; };
  waiting_.on_deadline = [] { return Status(StatusCode::kTimeout, "the first rows have waited long enough"); };
  LOAM_ASSIGN_OR_RETURN(source_, open_source(path_, &waiting_));
  name_ = source_->name();
  while (buffered_.size() < kBeginningBytes) {
    const auto got = read_more(kBeginningBytes - buffered_.size());
    if (got.code() == StatusCode::kTimeout) break;
    if (!got.ok()) return got.status();
    beginning_is_all_ = *got == 0;
    if (beginning_is_all_) break;
    // Two line ends mean a header and a row, unless a line end is inside quotes.
    const bool has_row = sample_deadline_ns_ == 0 && std::count(buffered_.begin(), buffered_.end(), '\n') > 1;
    if (has_row) sample_deadline_ns_ = Env::now_ns() + kSampleWaitNs;
  }
  beginning_bytes_ = buffered_.size();
  return ok_status();
}

Result<size_t> Input::read_more(size_t most) {
  const size_t before = buffered_.size();
  buffered_.resize(before + most);
  const auto got = source_->read(std::span(buffered_).subspan(before));
  buffered_.resize(before + (got.ok() ? *got : 0));
  return got;
}

Result<std::unique_ptr<ByteSource>> Input::sample(std::function<bool()> has_row) {
  // A file is opened a second time, so that its sample can be the whole file without being kept in memory.
  const bool is_file = path_ != "-" && source_->total_bytes() > 0;
  if (is_file) {
    sample_deadline_ns_ = 0;  // the sample of a file ends with the file
    return open_source(path_, &waiting_);
  }
  return std::unique_ptr<ByteSource>(std::make_unique<Sample>(*this, std::move(has_row)));
}

std::unique_ptr<ByteSource> Input::rows(std::function<uint64_t()> deadline_ns, std::function<Status()> on_deadline) {
  // The source refers to waiting_, so from now on it calls the functions of the caller.
  waiting_.deadline_ns = std::move(deadline_ns);
  waiting_.on_deadline = std::move(on_deadline);
  return prepend(std::move(buffered_), std::move(source_));
}

}  // namespace loam::cli
