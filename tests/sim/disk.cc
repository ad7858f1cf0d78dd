// The disk of disk.h. Times are random over several powers of two, so that a process may die at every stage of a
// write.
#include "tests/sim/disk.h"

#include <algorithm>
#include <utility>

#include <loam/commit/log_format.h>

#include "common/base/env.h"
#include "common/base/thread.h"

namespace loam::sim {
namespace {

/// An fsync takes from some microseconds to many milliseconds.
constexpr uint64_t kMinStoreNs = 5'000;
constexpr uint64_t kStoreScales = 12;
/// A write() takes a microsecond, and sometimes much longer.
constexpr uint64_t kMinWriteNs = 1'000;
constexpr uint64_t kWriteScales = 5;
constexpr uint64_t kSlowWriteIn = 64;
constexpr uint64_t kSlowWriteScales = 12;
/// Interval at which a stalled flush checks whether it may end.
constexpr uint64_t kStalledLookNs = 100'000;

}  // namespace

// ---- the state ------------------------------------------------------------------------------------------------------

Status SimDisk::store(Bytes state) {
  const uint64_t time_ns = kMinStoreNs << simulator_.random().below(kStoreScales);
  const uint64_t before_ns = simulator_.random().below(time_ns);
  Env::pause_point("manager.durable.before");
  sleep_ns(before_ns);  // a process that dies here has stored nothing
  Env::pause_point("manager.durable.beside");
  Env::pause_point("manager.durable.written");
  state_.assign(state.begin(), state.end());
  Env::pause_point("manager.durable.renamed");
  sleep_ns(time_ns - before_ns);  // a process that dies here has stored the state, and has told no client
  Env::pause_point("manager.durable.after");
  return ok_status();
}

// ---- the log --------------------------------------------------------------------------------------------------------

class SimDisk::OpenFile final : public commit::LogFile {
 public:
  OpenFile(SimDisk& disk, std::shared_ptr<File> file) : disk_(disk), file_(std::move(file)) {}

  Status write(Bytes& rest) override { return disk_.write(*file_, rest); }
  Status reserve(uint64_t bytes) override { return disk_.reserve(*file_, bytes); }
  Status flush() override {
    disk_.flush(*file_);
    return ok_status();
  }

 private:
  SimDisk& disk_;
  const std::shared_ptr<File> file_;
};

class SimDisk::Device final : public commit::LogDevice {
 public:
  explicit Device(SimDisk& disk) : disk_(disk) {}

  Result<std::optional<Buffer>> read() override {
    disk_.new_log_.reset();
    if (disk_.log_ == nullptr) return std::optional<Buffer>();
    return std::optional<Buffer>(disk_.log_->bytes);
  }

  Result<std::unique_ptr<commit::LogFile>> create() override {
    disk_.new_log_ = std::make_shared<File>();
    return std::unique_ptr<commit::LogFile>(std::make_unique<OpenFile>(disk_, disk_.new_log_));
  }

  Status replace() override {
    disk_.renamed_ = std::exchange(disk_.log_, std::exchange(disk_.new_log_, nullptr));
    Env::pause_point("manager.log.renamed");
    sleep_ns(kMinStoreNs << disk_.simulator_.random().below(kStoreScales));
    disk_.renamed_.reset();
    return ok_status();
  }

 private:
  SimDisk& disk_;
};

Result<std::unique_ptr<commit::LogDevice>> SimDisk::log_device() {
  std::unique_ptr<commit::LogDevice> device = std::make_unique<Device>(*this);
  return device;
}

Status SimDisk::write(File& file, Bytes& rest) {
  testing::Random& random = simulator_.random();
  size_t size = rest.size();
  if (full()) size = std::min<size_t>(size, file.reserved > file.bytes.size() ? file.reserved - file.bytes.size() : 0);
  const auto append = [&](size_t bytes) {
    file.bytes.insert(file.bytes.end(), rest.begin(), rest.begin() + static_cast<ptrdiff_t>(bytes));
    rest = rest.subspan(bytes);
  };
  const uint64_t scales = random.one_in(kSlowWriteIn) ? kSlowWriteScales : kWriteScales;
  const uint64_t time_ns = kMinWriteNs << random.below(scales);
  const bool whole = size == rest.size();
  // The write appears in two parts, so that a process that dies in between leaves a torn log record.
  const size_t first = size == 0 ? 0 : random.below(size + 1);
  append(first);
  sleep_ns(time_ns);  // a process that dies here leaves a prefix of the write
  append(size - first);
  if (whole) return ok_status();
  Env::probe("sim.disk.full");
  return {StatusCode::kNoSpace, "the simulated disk is full"};
}

Status SimDisk::reserve(File& file, uint64_t bytes) {
  if (!reserves_) return ok_status();
  if (full() && bytes > file.reserved) return {StatusCode::kNoSpace, "the simulated disk is full"};
  file.reserved = std::max(file.reserved, bytes);
  return ok_status();
}

void SimDisk::flush(File& file) {
  // A flush covers the bytes that were there when it began.
  const size_t size = file.bytes.size();
  sleep_ns(kMinStoreNs << simulator_.random().below(kStoreScales));
  while (simulator_.virtual_now_ns() < stalled_until_ns_) sleep_ns(kStalledLookNs);
  file.flushed = std::max(file.flushed, size);
}

// ---- faults -------------------------------------------------------------------------------------------------------

void SimDisk::truncate_unflushed(File& file) {
  testing::Random& random = simulator_.random();
  const size_t loose = file.bytes.size() - file.flushed;
  if (loose != 0) {
    const size_t kept = file.flushed + (random.one_in(4) ? loose : random.below(loose + 1));
    switch (random.below(4)) {
      case 0:  // the file system wrote the new length before the bytes
        std::fill(file.bytes.begin() + static_cast<ptrdiff_t>(kept), file.bytes.end(), std::byte{0});
        break;
      case 1:  // the disk wrote a page after the pages behind it
        for (size_t at = kept; at < std::min(file.bytes.size(), kept + 16); ++at) {
          file.bytes[at] = static_cast<std::byte>(random.below(256));
        }
        break;
      default:
        file.bytes.resize(kept);
    }
  }
  file.flushed = file.bytes.size();
}

void SimDisk::cut_power() {
  // A rename in a folder that was not flushed may be lost: the previous file then keeps the name.
  if (renamed_ != nullptr && simulator_.random().one_in(2)) log_ = renamed_;
  renamed_.reset();
  new_log_.reset();
  if (log_ == nullptr) return;
  // Makes another file object, because threads of dead processes hold the previous one.
  log_ = std::make_shared<File>(*log_);
  truncate_unflushed(*log_);
}

SimDisk::Copy SimDisk::copy() const {
  Copy copy{state_, std::nullopt};
  if (log_ != nullptr) copy.log = *log_;
  return copy;
}

void SimDisk::adopt(const Copy& copy) {
  state_ = copy.state;
  log_ = copy.log.has_value() ? std::make_shared<File>(*copy.log) : nullptr;
  new_log_.reset();
  renamed_.reset();
}

std::optional<commit::CommitLogContents> SimDisk::logged() const { return logged(copy()); }

std::optional<commit::CommitLogContents> SimDisk::logged(const Copy& copy) {
  if (!copy.log.has_value()) return std::nullopt;
  auto read = commit::read_log(copy.log->bytes);
  if (!read.ok()) return std::nullopt;
  return std::move(read->contents);
}

}  // namespace loam::sim
