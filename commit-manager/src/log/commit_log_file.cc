// The start of the commit log, the calls of the core's thread, and the flusher thread. commit_log_writer.cc has the
// writer and the checkpointer. log_format.cc encodes the bytes, and log_folder.cc has the system calls.
#include "commit-manager/src/log/commit_log_file.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "commit-manager/src/log/log_folder.h"
#include "common/base/assert.h"
#include "common/base/log.h"

namespace loam::commit {

Result<std::unique_ptr<CommitLogFile>> CommitLogFile::open(const CommitLogOptions& options) {
  LOAM_ASSIGN_OR_RETURN(std::unique_ptr<LogFolder> folder, LogFolder::open(options.folder));
  return open(options, std::move(folder));
}

Result<std::unique_ptr<CommitLogFile>> CommitLogFile::open(const CommitLogOptions& options,
                                                           std::unique_ptr<LogDevice> device) {
  std::unique_ptr<CommitLogFile> log(new CommitLogFile(options, std::move(device)));
  LOAM_RETURN_IF_ERROR(log->read());
  return log;
}

CommitLogFile::CommitLogFile(const CommitLogOptions& options, std::unique_ptr<LogDevice> device)
    : options_(options), device_(std::move(device)) {}

CommitLogFile::~CommitLogFile() {
  // The writer ends first and writes the queued commits. The last flush of the flusher then covers them.
  if (!writer_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  writer_wakeup_.notify_all();
  writer_.join();
  {
    const std::scoped_lock lock(mutex_);
    writer_ended_ = true;
  }
  flusher_wakeup_.notify_all();
  flusher_.join();
}

Status CommitLogFile::read() {
  const std::string path = options_.folder + "/commit-log";
  LOAM_ASSIGN_OR_RETURN(const std::optional<Buffer> bytes, device_->read());
  created_ = !bytes.has_value();
  if (!created_) {
    Result<LogReadResult> held = read_log(*bytes);
    if (!held.ok()) return {held.code(), path + ": " + std::string(held.status().message())};
    // No position in the tail was reported as flushed, because a report follows the flush of whole records. The
    // exception is a disk that loses flushed bytes.
    if (held->tail != LogTail::kClean) {
      const uint64_t left_out = bytes->size() - held->valid_bytes;
      log_warning("commit_log.torn_tail",
                  path + ": left out " + std::to_string(left_out) + " bytes behind commit " +
                      std::to_string(held->contents.end) + ", which are no record (" +
                      std::string(to_string(held->tail)) + "): a crash left them",
                  {{"path", path}, {"bytes", left_out}, {"commits", held->contents.end}});
    }
    initial_contents_ = std::move(held->contents);
  }
  return begin_file(path);
}

/// Continues in a new file, always. The bytes that were read need not be on the disk, even if a flush of the old file
/// succeeds now: after a failed flush, the operating system may mark its pages as clean.
Status CommitLogFile::begin_file(const std::string& path) {
  // Step 1: the new file, with everything that was read as its checkpoint. A crash before step 2 leaves the old log.
  Buffer bytes;
  encode_checkpoint(initial_contents_, entropy(), bytes);
  LOAM_ASSIGN_OR_RETURN(std::unique_ptr<LogFile> file, device_->create());
  Bytes rest = bytes;
  LOAM_RETURN_IF_ERROR(file->write(rest));
  LOAM_RETURN_IF_ERROR(file->flush());
  // Step 2: it becomes the log. A crash from here on leaves a log with the same commits.
  LOAM_RETURN_IF_ERROR(device_->replace());
  // Step 3: the writer continues behind the checkpoint. All commits in it count as flushed.
  LOAM_ASSIGN_OR_RETURN(const LogReadResult begun, read_log(bytes));
  appended_ = encoded_end_ = written_ = initial_contents_.end;
  progress_ = {initial_contents_.end, initial_contents_.end};
  LogOutput& output = outputs_.emplace_back();
  output.file = std::move(file);
  output.name = path;
  output.begin = begun.checkpoint_end;
  output.chain = begun.chain;
  output.size = bytes.size();
  log_ = output.file.get();
  return ok_status();
}

void CommitLogFile::start(std::function<void()> on_progress, std::function<void(const Status&)> on_failed) {
  on_progress_ = std::move(on_progress);
  on_failed_ = std::move(on_failed);
  writer_ = Thread("loam-log-write", [this] { write_loop(); });
  flusher_ = Thread("loam-log-flush", [this] { flush_loop(); });
}

void CommitLogFile::append(std::span<const TransactionId> ids) {
  if (ids.empty()) return;
  appended_ += ids.size();
  {
    const std::scoped_lock lock(mutex_);
    if (!failed_.ok()) return;
    const bool empty = queue_.empty();
    queue_.insert(queue_.end(), ids.begin(), ids.end());
    if (!empty) return;  // the writer was notified for an earlier batch
  }
  writer_wakeup_.notify_one();
}

void CommitLogFile::rewrite(CommitLogContents needed) {
  LOAM_CHECK(needed.end == appended_, "a rewrite counts all appended commits");
  {
    const std::scoped_lock lock(mutex_);
    if (!failed_.ok()) return;
    // This request replaces an earlier one that the writer has not taken yet. Nothing is lost, because this one counts
    // all commits of the earlier one.
    rewrite_request_ = std::move(needed);
    bytes_.store(0, std::memory_order_relaxed);  // see bytes_
  }
  writer_wakeup_.notify_one();
}

uint64_t CommitLogFile::bytes() const { return bytes_.load(std::memory_order_relaxed); }  // see bytes_

CommitLogProgress CommitLogFile::progress() {
  // One lock for both: a position that rises after this call causes another callback, so the core misses none.
  const std::scoped_lock lock(mutex_);
  progress_signaled_ = false;
  return progress_;
}

bool CommitLogFile::needs_progress_callback() { return !std::exchange(progress_signaled_, true); }

void CommitLogFile::fail(const Status& status) {
  {
    const std::scoped_lock lock(mutex_);
    if (!failed_.ok()) return;
    failed_ = status;
    queue_.clear();
  }
  // Writer and flusher end; the writer stops the checkpointer. Waiting commits are never accepted, and the core stops
  // when it hears of the failure.
  writer_wakeup_.notify_all();
  flusher_wakeup_.notify_all();
  on_failed_(status);
}

// ---- the flusher ---------------------------------------------------------------------------------------------------

/// One round: wait for unflushed bytes (in mode kOs also for more of them), flush, and in phase 3 replace the log.
/// The flush runs without mutex_, so the core and the writer never wait for it. The position is read before the
/// flush: commits that are written during the flush may or may not be on the disk, so they count for the next one.
void CommitLogFile::flush_loop() {
  for (;;) {
    std::vector<std::unique_ptr<LogFile>> retired;  // closed at the end of this round, without mutex_
    std::unique_lock lock(mutex_);
    // Step 1: wait. In mode kOs one flush serves all commits of `flush_after_ns`, so that the disk is not busy all the
    // time. The end of the writer and phase 3 do not wait.
    const auto at_once = [this] { return !failed_.ok() || writer_ended_ || replacement_ != nullptr; };
    flusher_wakeup_.wait(lock, [&] { return at_once() || unflushed_since_ns_ != 0 || !retired_.empty(); });
    retired.swap(retired_);
    if (unflushed_since_ns_ == 0 && !at_once()) continue;
    if (options_.mode == CommitLogMode::kOs && !at_once()) {
      const uint64_t due_ns = unflushed_since_ns_ + options_.flush_after_ns;
      const uint64_t now_ns = Env::now_ns();
      if (now_ns < due_ns) flusher_wakeup_.wait_for(lock, std::chrono::nanoseconds(due_ns - now_ns), at_once);
    }
    // Step 2: copy what this round flushes. A write during the flush sets unflushed_since_ns_ again.
    if (!failed_.ok()) return;
    const bool last = writer_ended_;
    const uint64_t position = written_;
    LogFile* const log = log_;
    LogFile* const replacement = replacement_;
    const bool due = std::exchange(unflushed_since_ns_, 0) != 0 || replacement != nullptr;
    lock.unlock();
    if (due) {
      // Step 3: flush, and in phase 3 replace the log.
      Status status = log->flush();
      // The new log is flushed before the rename, and the rename before the position is reported: see (b).
      if (status.ok() && replacement != nullptr) status = replacement->flush();
      if (status.ok()) Env::pause_point("manager.log.flushed");
      if (status.ok() && replacement != nullptr) status = device_->replace();
      if (!status.ok()) return fail(status);
      // Step 4: report. In mode kOs the commits were accepted before, and in mode kSync they are accepted now.
      lock.lock();
      progress_.flushed = position;
      progress_.accepted = std::max(progress_.accepted, position);
      if (replacement != nullptr) {
        log_ = replacement;
        replacement_ = nullptr;
        replaced_ = true;
      }
      const bool news = needs_progress_callback();
      lock.unlock();
      if (replacement != nullptr) writer_wakeup_.notify_one();
      if (news) on_progress_();
    }
    if (last) return;
  }
}

}  // namespace loam::commit
