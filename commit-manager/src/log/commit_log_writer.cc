// The writer thread and the checkpointer thread of CommitLogFile. Its header numbers the phases of a rewrite.
// commit_log_file.cc has the start and the flusher.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "commit-manager/src/log/commit_log_file.h"
#include "common/base/assert.h"
#include "common/base/log.h"

namespace loam::commit {
namespace {

/// The checkpointer flushes its file after each piece, so that no flush of the log waits behind many MiB.
constexpr size_t kPieceBytes = 1u << 20;
/// Capacity that the buffer of a log file keeps. A buffer that has held the commits of a long phase 1 is larger and
/// is freed.
constexpr size_t kKeptBytes = 4u << 20;

}  // namespace

/// Each round makes one batch of all commits that arrived during the round before, so one write() serves more commits
/// the slower the disk is. The round reports the commits only after write_all(), so no client gets the reply to a
/// commit that the log lacks (R11, commit log and restart of the commit manager).
void CommitLogFile::write_loop() {
  std::vector<TransactionId> ids;
  while (wait_for_work(ids)) {
    if (!ids.empty()) Env::pause_point("manager.log.appended");
    encode(ids);
    const Status status = write_all();
    if (!status.ok()) {
      fail(status);
      break;
    }
    if (!ids.empty()) Env::pause_point("manager.log.written");
    report_written();
    start_checkpointer();
  }
  stop_checkpointer();
}

bool CommitLogFile::wait_for_work(std::vector<TransactionId>& ids) {
  ids.clear();
  bool maker_ended = false;  // the checkpointer has ended
  {
    std::unique_lock lock(mutex_);
    const auto due = [this] {
      return stopping_ || !failed_.ok() || rewrite_request_.has_value() || new_log_.has_value() || replaced_ ||
             (!queue_.empty() && all_written());
    };
    if (const uint64_t pause = pause_ns(); pause != 0) {
      writer_wakeup_.wait_for(lock, std::chrono::nanoseconds(pause), due);
    } else {
      writer_wakeup_.wait(lock, due);
    }
    // The end of phase 3 comes first, because it decides how many logs start_rewrite() keeps.
    if (!failed_.ok()) return false;
    if (replaced_) retire_old_log();
    if (rewrite_request_.has_value()) start_rewrite();
    maker_ended = new_log_.has_value();
    if (maker_ended) adopt_new_log();
    // A full disk does not delay the end: commits that wait for room are given up. They were never reported as
    // accepted.
    if (stopping_ && (queue_.empty() || !all_written())) return false;
    // While a full disk delays earlier commits, later ones stay in the queue. Room for the earlier ones is then enough
    // to accept them.
    if (all_written()) ids.swap(queue_);
  }
  if (maker_ended) checkpointer_.join();
  return true;
}

/// Phase 4.
void CommitLogFile::retire_old_log() {
  replaced_ = false;
  replacing_ = false;
  retired_.push_back(std::move(outputs_.front().file));
  outputs_.pop_front();
  flusher_wakeup_.notify_one();
}

/// Before phase 1. Drops a new log that is in phase 1 or 2. In phase 3 the new log may be the log already, so it
/// stays, and the request waits behind it as the third output.
void CommitLogFile::start_rewrite() {
  const size_t kept = replacing_ ? 2 : 1;
  while (outputs_.size() > kept) {
    if (outputs_.back().file != nullptr) retired_.push_back(std::move(outputs_.back().file));
    outputs_.pop_back();
  }
  LogOutput& output = outputs_.emplace_back();
  output.name = outputs_.front().name;
  output.begin = rewrite_request_->end;
  output.nonce = output.chain = entropy();
  output.needed = std::make_shared<const CommitLogContents>(std::move(*rewrite_request_));
  rewrite_request_.reset();
  checkpointer_cancelled_ = true;  // a running checkpointer works for an earlier request
  checkpointer_wakeup_.notify_one();
  flusher_wakeup_.notify_one();
}

/// From phase 1 to phase 2: the checkpoint is on the disk. The next write_all() appends the commits that followed it.
void CommitLogFile::adopt_new_log() {
  NewLog made = std::move(*new_log_);
  new_log_.reset();
  if (made.file == nullptr) return;
  if (outputs_.size() < 2 || outputs_[1].nonce != made.nonce) {  // another rewrite was requested meanwhile
    retired_.push_back(std::move(made.file));
    flusher_wakeup_.notify_one();
    return;
  }
  outputs_[1].file = std::move(made.file);
  outputs_[1].size = made.size;
  outputs_[1].reserved = made.reserved;
}

void CommitLogFile::encode(std::span<const TransactionId> ids) {
  for (LogOutput& output : outputs_) {
    // The checkpoint contains the first `covered` ids, if rewrite() came between two batches of this round.
    const uint64_t covered = output.begin > encoded_end_ ? output.begin - encoded_end_ : 0;
    if (covered >= ids.size()) continue;
    const size_t before = output.encoded.size();
    encode_batch(ids.subspan(static_cast<size_t>(covered)), output.chain, output.encoded);
    output.appended_bytes += output.encoded.size() - before;
  }
  encoded_end_ += ids.size();
}

Status CommitLogFile::write_all() {
  for (LogOutput& output : outputs_) {
    if (output.file == nullptr || output.encoded.empty()) continue;
    const Status status = write(output);
    // A full disk is the only failure that is not final: the bytes stay in `encoded`, and commits wait for them.
    if (status == StatusCode::kNoSpace) {
      note_full(output, 0);
    } else {
      LOAM_RETURN_IF_ERROR(status);
    }
  }
  return ok_status();
}

Status CommitLogFile::write(LogOutput& output) {
  Bytes rest = Bytes(output.encoded).subspan(output.written);
  LOAM_RETURN_IF_ERROR(preallocate(output, output.size + rest.size()));
  // write() may take a part of the bytes before the disk is full. The next try continues behind this part, because a
  // repeated part would break the chain of checksums.
  const size_t size = rest.size();
  const Status status = output.file->write(rest);
  output.written += size - rest.size();
  output.size += size - rest.size();
  LOAM_RETURN_IF_ERROR(status);
  output.encoded.clear();
  output.written = 0;
  if (output.encoded.capacity() > kKeptBytes) output.encoded = Buffer();
  // The disk counts as full until half of the preallocation is there again, so operators do not get a pair of log
  // lines for each block that becomes free.
  if (output.pause_ns != 0 && output.reserved >= output.size + options_.preallocate_bytes / 2) {
    log_info("disk.has_room", output.name + ": the disk has room again", {{"path", output.name}});
    output.pause_ns = 0;
  }
  return ok_status();
}

/// Allocates disk space so that the file can grow to `bytes`. kNoSpace: it cannot grow to that size now. The writer
/// allocates ahead, so it notices a full disk before a write fails in the middle of a record.
Status CommitLogFile::preallocate(LogOutput& output, uint64_t bytes) {
  if (bytes + options_.preallocate_bytes / 2 <= output.reserved) return ok_status();
  const Status full(StatusCode::kNoSpace, "");
  if (output.pause_ns == 0 || Env::now_ns() >= output.retry_ns) {
    const uint64_t wanted = bytes + options_.preallocate_bytes;
    Status status = output.file->reserve(wanted);
    if (status.ok()) {
      output.reserved = wanted;
      return ok_status();
    }
    if (status != StatusCode::kNoSpace) return status;
    // The disk may still have room for this round alone.
    if (bytes > output.reserved && output.file->reserve(bytes).ok()) output.reserved = bytes;
    if (bytes <= output.reserved) note_full(output, output.reserved - output.size);
  }
  return bytes <= output.reserved ? ok_status() : full;
}

void CommitLogFile::note_full(LogOutput& output, uint64_t left) {
  const uint64_t now_ns = Env::now_ns();
  if (output.pause_ns == 0) {
    log_warning("disk.full",
                output.name + ": the disk is full; after " + std::to_string(left) +
                    " more bytes commits wait until there is room; free space on that disk",
                {{"path", output.name}, {"bytes_left", left}});
    output.pause_ns = options_.first_pause_ns;
  } else if (now_ns >= output.retry_ns) {
    output.pause_ns = std::min(2 * output.pause_ns, options_.longest_pause_ns);
  } else {
    return;  // the pause is not over
  }
  output.retry_ns = now_ns + output.pause_ns;
}

bool CommitLogFile::all_written() const {
  return outputs_[0].encoded.empty() && (!replacing_ || outputs_[1].encoded.empty());
}

uint64_t CommitLogFile::pause_ns() const {
  uint64_t shortest = 0;
  for (const LogOutput& output : outputs_) {
    if (output.file == nullptr || output.encoded.empty()) continue;
    if (shortest == 0 || output.pause_ns < shortest) shortest = output.pause_ns;
  }
  return shortest;
}

void CommitLogFile::report_written() {
  bool news = false;
  {
    const std::scoped_lock lock(mutex_);
    if (!failed_.ok()) return;  // a flush has failed: nothing may be accepted any more
    if (written_ != encoded_end_ && all_written()) {
      written_ = encoded_end_;
      if (unflushed_since_ns_ == 0) {
        unflushed_since_ns_ = std::max<uint64_t>(Env::now_ns(), 1);
        flusher_wakeup_.notify_one();
      }
      if (options_.mode == CommitLogMode::kOs) {
        progress_.accepted = written_;
        news = needs_progress_callback();
      }
    }
    if (!rewrite_request_.has_value())
      bytes_.store(outputs_.back().appended_bytes, std::memory_order_relaxed);  // see bytes_
    if (!replacing_ && outputs_.size() > 1 && outputs_[1].file != nullptr && outputs_[1].encoded.empty()) {
      replacing_ = true;  // phase 3: the new log has caught up
      replacement_ = outputs_[1].file.get();
      flusher_wakeup_.notify_one();
    }
  }
  if (news) on_progress_();
}

// ---- the checkpointer ----------------------------------------------------------------------------------------------

void CommitLogFile::start_checkpointer() {
  if (checkpointer_.joinable() || replacing_ || outputs_.size() < 2 || outputs_[1].needed == nullptr) return;
  {
    const std::scoped_lock lock(mutex_);
    checkpointer_cancelled_ = stopping_;
  }
  checkpointer_ = Thread("loam-checkpoint", [this, needed = std::exchange(outputs_[1].needed, nullptr),
                                             nonce = outputs_[1].nonce] { write_checkpoint(*needed, nonce); });
}

void CommitLogFile::stop_checkpointer() {
  if (!checkpointer_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    checkpointer_cancelled_ = true;
  }
  checkpointer_wakeup_.notify_one();
  checkpointer_.join();
}

void CommitLogFile::write_checkpoint(const CommitLogContents& needed, uint64_t nonce) {
  Buffer beginning;
  encode_checkpoint(needed, nonce, beginning);
  NewLog made{.file = nullptr, .nonce = nonce, .size = beginning.size(), .reserved = 0};
  made.reserved = made.size + options_.preallocate_bytes;
  uint64_t pause_ns = 0;
  for (;;) {
    auto file = write_new_log(beginning, made.reserved);
    if (file.ok()) {
      made.file = std::move(file).value();
      break;
    }
    // A full disk does not end the log: commits go to the old file meanwhile, which grows.
    if (file.status() != StatusCode::kNoSpace) {
      fail(file.status());
      break;
    }
    if (pause_ns == 0) {
      log_warning("commit_log.not_rewritten",
                  std::string(file.status().message()) +
                      "; the log cannot be rewritten, and grows, until there is room; free space on that disk");
    }
    pause_ns = pause_ns == 0 ? options_.first_pause_ns : std::min(2 * pause_ns, options_.longest_pause_ns);
    if (pause_checkpointer(pause_ns)) break;
  }
  if (made.file != nullptr) Env::pause_point("manager.log.beside");
  {
    const std::scoped_lock lock(mutex_);
    new_log_ = std::move(made);
  }
  writer_wakeup_.notify_one();
}

Result<std::unique_ptr<LogFile>> CommitLogFile::write_new_log(Bytes beginning, uint64_t room) {
  LOAM_ASSIGN_OR_RETURN(std::unique_ptr<LogFile> file, device_->create());
  // The room is allocated first, so that a full disk costs one call and not a half-written checkpoint.
  LOAM_RETURN_IF_ERROR(file->reserve(room));
  while (!beginning.empty()) {
    if (pause_checkpointer(0)) return std::unique_ptr<LogFile>();
    Bytes piece = beginning.first(std::min(beginning.size(), kPieceBytes));
    beginning = beginning.subspan(piece.size());
    LOAM_RETURN_IF_ERROR(file->write(piece));
    LOAM_RETURN_IF_ERROR(file->flush());
  }
  return file;
}

bool CommitLogFile::pause_checkpointer(uint64_t pause_ns) {
  std::unique_lock lock(mutex_);
  if (pause_ns == 0 || checkpointer_cancelled_) return checkpointer_cancelled_;
  return checkpointer_wakeup_.wait_for(lock, std::chrono::nanoseconds(pause_ns),
                                       [this] { return checkpointer_cancelled_; });
}

}  // namespace loam::commit
