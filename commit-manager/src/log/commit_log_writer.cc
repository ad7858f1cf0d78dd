// The writer and the maker of CommitLogFile.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "commit-manager/src/log/commit_log_file.h"
#include "common/base/assert.h"
#include "common/base/log.h"

namespace loam::commit {
namespace {

/// The maker flushes its file after each piece, so that no flush of the log waits behind many MiB.
constexpr size_t kPieceBytes = 1u << 20;
/// Capacity that a segment's buffer keeps; one that holds the commits during a long step 1 grows larger.
constexpr size_t kKeptBytes = 4u << 20;

}  // namespace

void CommitLogFile::write_loop() {
  std::vector<TransactionId> ids;
  while (take(ids)) {
    if (!ids.empty()) Env::pause_point("manager.log.appended");
    encode(ids);
    const Status status = write_all();
    if (!status.ok()) {
      fail(status);
      break;
    }
    if (!ids.empty()) Env::pause_point("manager.log.written");
    tell_written();
    start_maker();
  }
  stop_maker();
}

bool CommitLogFile::take(std::vector<TransactionId>& ids) {
  ids.clear();
  bool maker_ended = false;
  {
    std::unique_lock lock(mutex_);
    const auto due = [this] {
      return stopping_ || !failed_.ok() || wanted_.has_value() || made_.has_value() || replaced_ ||
             (!queue_.empty() && all_written());
    };
    if (const uint64_t pause = pause_ns(); pause != 0) {
      writer_due_.wait_for(lock, std::chrono::nanoseconds(pause), due);
    } else {
      writer_due_.wait(lock, due);
    }
    if (!failed_.ok()) return false;
    if (replaced_) take_replaced();
    if (wanted_.has_value()) take_new_beginning();
    maker_ended = made_.has_value();
    if (maker_ended) take_made();
    if (stopping_ && (queue_.empty() || !all_written())) return false;
    if (all_written()) ids.swap(queue_);
  }
  if (maker_ended) maker_.join();
  return true;
}

void CommitLogFile::take_replaced() {
  replaced_ = false;
  replacing_ = false;
  retired_.push_back(std::move(segments_.front().file));
  segments_.pop_front();
  flusher_due_.notify_one();
}

void CommitLogFile::take_new_beginning() {
  const size_t kept = replacing_ ? 2 : 1;
  while (segments_.size() > kept) {
    if (segments_.back().file != nullptr) retired_.push_back(std::move(segments_.back().file));
    segments_.pop_back();
  }
  Segment& segment = segments_.emplace_back();
  segment.name = segments_.front().name;
  segment.begin = wanted_->end;
  segment.nonce = segment.chain = entropy();
  segment.needed = std::make_shared<const CommitLogContents>(std::move(*wanted_));
  wanted_.reset();
  maker_cancelled_ = true;  // if there is one, it makes the beginning before this
  maker_due_.notify_one();
  flusher_due_.notify_one();
}

void CommitLogFile::take_made() {
  Made made = std::move(*made_);
  made_.reset();
  if (made.file == nullptr) return;
  if (segments_.size() < 2 || segments_[1].nonce != made.nonce) {  // another beginning is wanted meanwhile
    retired_.push_back(std::move(made.file));
    flusher_due_.notify_one();
    return;
  }
  segments_[1].file = std::move(made.file);
  segments_[1].size = made.size;
  segments_[1].reserved = made.reserved;
}

void CommitLogFile::encode(std::span<const TransactionId> ids) {
  for (Segment& segment : segments_) {
    // Its beginning has the first of them, if begin_anew() came between two batches of this round.
    const uint64_t covered = segment.begin > taken_ ? segment.begin - taken_ : 0;
    if (covered >= ids.size()) continue;
    const size_t before = segment.encoded.size();
    encode_batch(ids.subspan(static_cast<size_t>(covered)), segment.chain, segment.encoded);
    segment.appended_bytes += segment.encoded.size() - before;
  }
  taken_ += ids.size();
}

Status CommitLogFile::write_all() {
  for (Segment& segment : segments_) {
    if (segment.file == nullptr || segment.encoded.empty()) continue;
    const Status status = write(segment);
    if (status == StatusCode::kNoSpace) {
      note_full(segment, 0);
    } else {
      LOAM_RETURN_IF_ERROR(status);
    }
  }
  return ok_status();
}

Status CommitLogFile::write(Segment& segment) {
  Bytes rest = Bytes(segment.encoded).subspan(segment.written);
  LOAM_RETURN_IF_ERROR(make_room(segment, segment.size + rest.size()));
  const size_t size = rest.size();
  const Status status = segment.file->write(rest);
  segment.written += size - rest.size();
  segment.size += size - rest.size();
  LOAM_RETURN_IF_ERROR(status);
  segment.encoded.clear();
  segment.written = 0;
  if (segment.encoded.capacity() > kKeptBytes) segment.encoded = Buffer();
  if (segment.pause_ns != 0 && segment.reserved >= segment.size + options_.room_ahead_bytes / 2) {
    log_info(segment.name + ": the disk has room again");
    segment.pause_ns = 0;
  }
  return ok_status();
}

/// kNoSpace: the file cannot grow to that size now.
Status CommitLogFile::make_room(Segment& segment, uint64_t bytes) {
  if (bytes + options_.room_ahead_bytes / 2 <= segment.reserved) return ok_status();
  const Status full(StatusCode::kNoSpace, "");
  if (segment.pause_ns == 0 || Env::now_ns() >= segment.retry_ns) {
    const uint64_t wanted = bytes + options_.room_ahead_bytes;
    Status status = segment.file->reserve(wanted);
    if (status.ok()) {
      segment.reserved = wanted;
      return ok_status();
    }
    if (status != StatusCode::kNoSpace) return status;
    // The last bytes of the disk are good for this round.
    if (bytes > segment.reserved && segment.file->reserve(bytes).ok()) segment.reserved = bytes;
    if (bytes <= segment.reserved) note_full(segment, segment.reserved - segment.size);
  }
  return bytes <= segment.reserved ? ok_status() : full;
}

void CommitLogFile::note_full(Segment& segment, uint64_t left) {
  const uint64_t now_ns = Env::now_ns();
  if (segment.pause_ns == 0) {
    log_warning(segment.name + ": the disk is full; when " + std::to_string(left) +
                " more bytes are written, commits wait until there is room; make room on that disk");
    segment.pause_ns = options_.first_pause_ns;
  } else if (now_ns >= segment.retry_ns) {
    segment.pause_ns = std::min(2 * segment.pause_ns, options_.longest_pause_ns);
  } else {
    return;  // it was not time to ask
  }
  segment.retry_ns = now_ns + segment.pause_ns;
}

bool CommitLogFile::all_written() const {
  return segments_[0].encoded.empty() && (!replacing_ || segments_[1].encoded.empty());
}

uint64_t CommitLogFile::pause_ns() const {
  uint64_t shortest = 0;
  for (const Segment& segment : segments_) {
    if (segment.file == nullptr || segment.encoded.empty()) continue;
    if (shortest == 0 || segment.pause_ns < shortest) shortest = segment.pause_ns;
  }
  return shortest;
}

void CommitLogFile::tell_written() {
  bool news = false;
  {
    const std::scoped_lock lock(mutex_);
    if (!failed_.ok()) return;  // the flush of what lies before
    if (written_ != taken_ && all_written()) {
      written_ = taken_;
      if (unflushed_since_ns_ == 0) {
        unflushed_since_ns_ = std::max<uint64_t>(Env::now_ns(), 1);
        flusher_due_.notify_one();
      }
      if (options_.mode == CommitLogMode::kOs) {
        progress_.accepted = written_;
        news = has_news();
      }
    }
    if (!wanted_.has_value()) bytes_.store(segments_.back().appended_bytes, std::memory_order_relaxed);  // see bytes_
    if (!replacing_ && segments_.size() > 1 && segments_[1].file != nullptr && segments_[1].encoded.empty()) {
      replacing_ = true;  // step 3
      replacement_ = segments_[1].file.get();
      flusher_due_.notify_one();
    }
  }
  if (news) on_progress_();
}

// The maker.

void CommitLogFile::start_maker() {
  if (maker_.joinable() || replacing_ || segments_.size() < 2 || segments_[1].needed == nullptr) return;
  {
    const std::scoped_lock lock(mutex_);
    maker_cancelled_ = stopping_;
  }
  maker_ = Thread("loam-log-anew", [this, needed = std::exchange(segments_[1].needed, nullptr),
                                    nonce = segments_[1].nonce] { make(*needed, nonce); });
}

void CommitLogFile::stop_maker() {
  if (!maker_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    maker_cancelled_ = true;
  }
  maker_due_.notify_one();
  maker_.join();
}

void CommitLogFile::make(const CommitLogContents& needed, uint64_t nonce) {
  Buffer beginning;
  encode_beginning(needed, nonce, beginning);
  Made made{.file = nullptr, .nonce = nonce, .size = beginning.size(), .reserved = 0};
  made.reserved = made.size + options_.room_ahead_bytes;
  uint64_t pause_ns = 0;
  for (;;) {
    auto file = write_new_log(beginning, made.reserved);
    if (file.ok()) {
      made.file = std::move(file).value();
      break;
    }
    if (file.status() != StatusCode::kNoSpace) {
      fail(file.status());
      break;
    }
    if (pause_ns == 0) {
      log_warning(std::string(file.status().message()) +
                  "; the log cannot begin anew, and grows, until there is room; make room on that disk");
    }
    pause_ns = pause_ns == 0 ? options_.first_pause_ns : std::min(2 * pause_ns, options_.longest_pause_ns);
    if (pause_maker(pause_ns)) break;
  }
  if (made.file != nullptr) Env::pause_point("manager.log.beside");
  {
    const std::scoped_lock lock(mutex_);
    made_ = std::move(made);
  }
  writer_due_.notify_one();
}

Result<std::unique_ptr<LogFile>> CommitLogFile::write_new_log(Bytes beginning, uint64_t room) {
  LOAM_ASSIGN_OR_RETURN(std::unique_ptr<LogFile> file, device_->create());
  LOAM_RETURN_IF_ERROR(file->reserve(room));
  while (!beginning.empty()) {
    if (pause_maker(0)) return std::unique_ptr<LogFile>();
    Bytes piece = beginning.first(std::min(beginning.size(), kPieceBytes));
    beginning = beginning.subspan(piece.size());
    LOAM_RETURN_IF_ERROR(file->write(piece));
    LOAM_RETURN_IF_ERROR(file->flush());
  }
  return file;
}

bool CommitLogFile::pause_maker(uint64_t pause_ns) {
  std::unique_lock lock(mutex_);
  if (pause_ns == 0 || maker_cancelled_) return maker_cancelled_;
  return maker_due_.wait_for(lock, std::chrono::nanoseconds(pause_ns), [this] { return maker_cancelled_; });
}

}  // namespace loam::commit
