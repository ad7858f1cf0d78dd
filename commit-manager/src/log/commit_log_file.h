// The commit log in a file, and the threads that write it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <loam/commit/core.h>
#include <loam/commit/log_device.h>
#include <loam/commit/log_format.h>

#include "common/base/bytes.h"
#include "common/base/env.h"
#include "common/base/status.h"
#include "common/base/thread.h"

namespace loam::commit {

/// Settings of a CommitLogFile.
struct CommitLogOptions {
  /// Folder of the file `commit-log`. It exists, and only this process uses it (StateFile locks it). Messages name
  /// it. Empty if the log is not in a folder.
  std::string folder;
  CommitLogMode mode = CommitLogMode::kOs;  ///< when a commit is accepted; kNone has no CommitLogFile
  /// Mode kOs: delay from the first unflushed commit to the start of a flush. It is half of the 10 ms that R11
  /// allows; the flush itself takes the rest.
  uint64_t flush_after_ns = 5'000'000;
  /// Disk space that the log allocates beyond its content. While the disk is not full, at least half of it is left.
  /// So the log notices a full disk while there is space for about 100,000 more commits.
  uint64_t preallocate_bytes = 4u << 20;
  /// Pause before the log tries again after a full disk. Each further pause doubles, up to `longest_pause_ns`.
  uint64_t first_pause_ns = 10'000'000;
  uint64_t longest_pause_ns = 1'000'000'000;
};

/// Writes the ids of committed transactions to a file [R11, commit log and restart of the commit manager]. It is the
/// commit log of the core.
///
/// Threads. The core's thread calls append(), rewrite() and bytes(). They hold a mutex while some ids are copied, and
/// never wait for a disk. The other threads block on the disk, and none of them waits for a disk operation of another
/// one:
/// * The *writer* encodes the queued commits and passes them to the kernel by one write(). It also makes all
///   decisions.
/// * The *flusher* flushes the file. In mode kSync it flushes as soon as something is written, so all commits that
///   arrive during a flush share the next one. In mode kOs it flushes every few milliseconds.
/// * The *checkpointer* writes the checkpoint of a new file, and ends after it.
/// In mode kOs commits are accepted while a flush hangs. The kernel may still make write() wait, for example when too
/// much memory holds unwritten pages, or when the journal of the file system is full.
///
/// Rewrite. rewrite() passes everything that is needed of commits 1 … E. It replaces the file in four phases:
/// 1. Checkpoint. The checkpointer writes the new checkpoint to `commit-log.new` in pieces and flushes each. The
///    writer continues with the old log, and encodes the commits after E for the new log too; it keeps these bytes in
///    memory. A chain starts with a nonce, so the encoding does not need the checkpoint.
/// 2. Catch-up. The writer appends these bytes to the new log. From then on it writes each round to both logs.
/// 3. Replacement. It starts when the new log has everything that the old log has. The flusher flushes both,
///    renames the new log over the old one, and flushes the folder. It reports no progress meanwhile. A commit counts
///    as written when it is written to both logs.
/// 4. Retirement. The new log is the log, and the writer drops the old one.
/// So no commit waits for the checkpoint, which may have many MiB. In mode kOs a rewrite delays no commit. In mode
/// kSync it delays commits by one more flush. A rewrite() during phase 1 or 2 drops the new log and starts again, so
/// the memory of phase 1 is limited by the length at which the core starts a rewrite. A rewrite() during phase 3
/// starts after phase 4.
///
/// Crashes. After each of these losses `commit-log` is a readable log with every commit that progress() has reported:
/// (a) The process dies. All bytes that write() has taken survive, and so does a rename.
///     Before the rename the old log is the log. It holds every accepted commit, because each round is written to it.
///     After the rename the new log is the log. Its checkpoint holds all commits up to E. It holds the later ones
///     too, because phase 3 starts when it has caught up, and in phase 3 a commit is accepted only when it is in both
///     logs.
/// (b) The host loses power. A log loses bytes that were not flushed, and ends where its chain breaks (log_format.h).
///     So it keeps a prefix that contains everything that was flushed. Until the folder is flushed, the rename may be
///     lost. If it is lost, the old log is there, and every position that was reported as flushed was flushed in it.
///     Otherwise the new log is there. It was flushed before the rename, with every position that had been reported as
///     flushed until then. The next position is reported after the flush of the folder, and was flushed in the new
///     log.
/// (c) A restart. open() reads the log, leaves out the torn tail, and writes the result to a new file. This file is on
///     the disk and has the name of the log before any of its commits is used. So the commits that a start has found
///     survive even if an earlier flush has failed. After a failed flush the operating system may show bytes that the
///     disk does not have, and may never write them.
///
/// Failures. If the disk is full, the log keeps the unwritten bytes, commits wait, and the log tries again with
/// growing pauses. A log line tells operators when this begins and when it ends. Every other failure is final: the
/// log calls `on_failed` once and accepts nothing any more, and the process has to end, because the content of the
/// disk is unknown.
///
/// Owner: CommitManager.
class CommitLogFile final : public CommitLog {
 public:
  /// Reads the log of the folder, if there is one, and continues it in a new file. kMalformed, kUnsupportedVersion:
  /// see read_log(). kNoSpace, kInternal: the disk failed.
  static Result<std::unique_ptr<CommitLogFile>> open(const CommitLogOptions& options);
  /// Does the same with the log of `device`.
  static Result<std::unique_ptr<CommitLogFile>> open(const CommitLogOptions& options,
                                                     std::unique_ptr<LogDevice> device);
  /// Writes and flushes all appended commits, if there is room for them, and ends the threads. Drops a rewrite that
  /// is under way. Callbacks may come until the destructor returns.
  ~CommitLogFile() override;
  CommitLogFile(const CommitLogFile&) = delete;
  CommitLogFile& operator=(const CommitLogFile&) = delete;

  /// Returns the content of the log at open().
  const CommitLogContents& initial_contents() const { return initial_contents_; }
  /// True if open() found no log and made one.
  bool created() const { return created_; }

  /// Starts the threads. Commits that are appended before start() wait for it. The threads call the callbacks, which
  /// must return soon. A call of `on_progress` means that progress() has news. The log calls it again only after the
  /// next progress(). `on_failed` is called at most once.
  void start(std::function<void()> on_progress, std::function<void(const Status&)> on_failed);

  void append(std::span<const TransactionId> ids) override;
  /// `needed.end` is the position of the last appended commit.
  void rewrite(CommitLogContents needed) override;
  /// Excludes the checkpoint and commits that the writer has not encoded yet.
  uint64_t bytes() const override;

  /// Returns the positions up to which commits are accepted and flushed. Any thread may call it.
  CommitLogProgress progress();

 private:
  /// The writer's view of one log file, which may not exist yet: unwritten bytes and allocated space. Writer only.
  struct LogOutput {
    std::unique_ptr<LogFile> file;  // null: the checkpointer has not made it yet
    std::string name;               // for log lines
    uint64_t begin = 0;             // position of the last commit in its checkpoint
    uint64_t chain = 0;
    uint64_t nonce = 0;
    std::shared_ptr<const CommitLogContents> needed{};  // its checkpoint, until the checkpointer takes it
    uint64_t size = 0;                                  // bytes in the file
    uint64_t reserved = 0;                              // bytes allocated for the file
    Buffer encoded{};                                   // its first `written` bytes are written
    size_t written = 0;
    uint64_t appended_bytes = 0;  // bytes encoded behind its checkpoint
    uint64_t pause_ns = 0;        // 0: the disk has room for it
    uint64_t retry_ns = 0;        // if the disk is full: when the writer tries to allocate again
  };
  /// The result of the checkpointer.
  struct NewLog {
    std::unique_ptr<LogFile> file;  // null: cancelled, or failed
    uint64_t nonce = 0;
    uint64_t size = 0;
    uint64_t reserved = 0;
  };

  CommitLogFile(const CommitLogOptions& options, std::unique_ptr<LogDevice> device);

  // open().
  Status read();
  Status begin_file(const std::string& path);

  // The writer.
  void write_loop();
  /// Waits for work and takes it over: queued ids, a rewrite request, the result of the checkpointer, the end of
  /// phase 3. False: the writer has to end.
  bool wait_for_work(std::vector<TransactionId>& ids);
  // The caller of the next three holds mutex_.
  void start_rewrite();
  void adopt_new_log();
  void retire_old_log();
  void encode(std::span<const TransactionId> ids);
  /// Writes the encoded bytes of each file, as far as the disk has room.
  Status write_all();
  Status write(LogOutput& output);
  Status preallocate(LogOutput& output, uint64_t bytes);
  /// Notes that the disk is full. `left`: bytes that still fit into the allocated space.
  void note_full(LogOutput& output, uint64_t left);
  void report_written();
  void start_checkpointer();
  void stop_checkpointer();
  /// True if all encoded bytes are written to the log, and in phase 3 to both logs.
  bool all_written() const;
  /// Returns the time to wait for room on the disk; 0: no file waits for room.
  uint64_t pause_ns() const;

  // The checkpointer.
  void write_checkpoint(const CommitLogContents& needed, uint64_t nonce);
  /// Returns null if it was cancelled.
  Result<std::unique_ptr<LogFile>> write_new_log(Bytes beginning, uint64_t room);
  /// Waits. Returns true if the checkpointer was cancelled.
  bool pause_checkpointer(uint64_t pause_ns);

  // The flusher.
  void flush_loop();

  void fail(const Status& status);
  /// The caller holds mutex_. Returns true if the caller has to call on_progress_ after it has released mutex_.
  bool needs_progress_callback();

  // Const after open() or start().
  const CommitLogOptions options_;
  const std::unique_ptr<LogDevice> device_;
  CommitLogContents initial_contents_;
  bool created_ = false;
  std::function<void()> on_progress_;
  std::function<void(const Status&)> on_failed_;

  // The core's thread only.
  uint64_t appended_ = 0;  // position of the last appended commit

  // The writer's thread only, once it runs. The log is in front, the new log second. During phase 3 a third one may
  // wait for phase 4.
  std::deque<LogOutput> outputs_;
  uint64_t encoded_end_ = 0;  // position up to which commits are encoded
  Thread checkpointer_;
  bool replacing_ = false;  // phase 3

  Mutex mutex_;
  Condition writer_wakeup_;        // signaled when a condition of wait_for_work() may have changed
  Condition flusher_wakeup_;       // signaled for unflushed_since_ns_, replacement_, retired_, writer_ended_, failed_
  Condition checkpointer_wakeup_;  // signaled for checkpointer_cancelled_
  // Guarded by mutex_.
  std::vector<TransactionId> queue_;                  // appended, and not taken by the writer
  std::optional<CommitLogContents> rewrite_request_;  // a rewrite() that the writer has not taken
  std::optional<NewLog> new_log_;                     // set when the checkpointer has ended
  bool checkpointer_cancelled_ = false;
  uint64_t written_ = 0;             // position up to which commits are in the log, and in phase 3 in both logs
  uint64_t unflushed_since_ns_ = 0;  // 0: no flush is due
  CommitLogProgress progress_;
  bool progress_signaled_ = false;  // on_progress_ was called after the last progress()
  LogFile* log_ = nullptr;          // file of outputs_[0]; of outputs_[1] from the rename to phase 4
  LogFile* replacement_ = nullptr;  // phase 3: the new log; null when the flusher is done
  bool replaced_ = false;           // phase 4: the writer has to drop the old log
  /// Files that are not needed any more. The flusher closes them, because the close of a file without a name frees
  /// its blocks and may take long.
  std::vector<std::unique_ptr<LogFile>> retired_;
  bool stopping_ = false;
  bool writer_ended_ = false;
  Status failed_;
  // The writer and rewrite() write it with mutex_; the core reads it without. Relaxed: a stale value only delays a
  // rewrite, and rewrite() runs on the reader's own thread.
  Env::Atomic<uint64_t> bytes_{0};

  Thread writer_;
  Thread flusher_;
};

}  // namespace loam::commit
