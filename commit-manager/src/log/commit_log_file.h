// The commit log on a disk, and the threads that write it.
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

struct CommitLogOptions {
  /// Where `commit-log` is; it exists, and is this process's alone (StateFile locks it). Messages name it; empty if the
  /// log is not in a folder.
  std::string folder;
  CommitLogMode mode = CommitLogMode::kOs;
  /// Mode kOs: a flush starts this long after the first commit that it has to take. Half of the 10 ms that R11 allows:
  /// the flush itself takes the rest.
  uint64_t flush_after_ns = 5'000'000;
  /// Room on the disk that the log has taken beyond its content, at least half of it at all times while the disk is not
  /// full. So a full disk is noticed while there is room for some 100,000 commits.
  uint64_t room_ahead_bytes = 4u << 20;
  /// Without room, the log tries again after this pause, and doubles it each time up to the longest.
  uint64_t first_pause_ns = 10'000'000;
  uint64_t longest_pause_ns = 1'000'000'000;
};

/// Role: keeps the ids of committed transactions in a file [R11]; the core's commit log.
///
/// Threads. append(), begin_anew() and bytes() are the core's; they take a mutex for the copy of some ids and never
/// wait for a disk. Each of the others blocks on the disk, and none waits for a disk operation of another one:
/// * The *writer* encodes what has gathered, and passes it to the kernel by one write(). It also decides all else.
/// * The *flusher* brings the file to the disk: in mode kSync as soon as anything is written, so all commits that come
///   during a flush share the next one; in mode kOs every few milliseconds.
/// * The *maker* lives while a new beginning is made.
/// In mode kOs commits are accepted while a flush hangs. The kernel may still make write() wait, for example when too
/// much memory holds unwritten pages, or when the journal of the file system is full.
///
/// A new beginning. begin_anew() comes with everything that is needed of commits 1 … E. From then on:
/// 1. Making. The maker writes the new beginning to `commit-log.new` in pieces and flushes each. The writer goes on
///    with the old log, and encodes the commits after E for the new log too; it keeps these bytes in memory. A chain
///    starts with a nonce, so this does not need the beginning.
/// 2. Catching up. The writer appends these bytes to the new log. From then on it writes each round to both logs.
/// 3. Replacing. When the new log has everything that the old log has, the flusher flushes both, renames the new log
///    over the old one, and flushes the folder. It tells no progress meanwhile. A commit counts as written when it is
///    written to both.
/// 4. The new log is the log, and the old one is closed.
/// So neither mode waits for the beginning, which may have many MiB: kOs not at all, kSync for one flush more.
/// A begin_anew() during 1 or 2 drops the new log that is being made and starts again, so what step 1 keeps in memory
/// is limited by the length at which the core begins anew. A begin_anew() during 3 starts after 4.
///
/// After each of these losses `commit-log` is a readable log, and holds every commit that progress() has told:
/// (a) The process dies. All that write() has taken stays, and so does a rename. Before the rename the old log is the
///     log, and holds every accepted commit, because each round is written to it. After the rename the new log is the
///     log. It holds all commits up to E in its beginning. It holds the later ones, because step 3 starts when it has
///     caught up, and because in step 3 a commit is accepted only when it is in both.
/// (b) The host loses power. A log loses the bytes that were not flushed, and is cut where its chain breaks
///     (log_format.h), so it keeps a prefix with everything that was flushed. While the folder is not flushed, the
///     rename survives or not. If not, the old log is there, and every position that was told flushed was flushed in
///     it. If so, the new log is there. It was flushed before the rename, with every position that had been told
///     flushed until then; the next position is told after the folder is flushed, and was flushed in the new log.
/// (c) open() reads the log, leaves out the torn tail, and writes what it has found to a new file, which is on the disk
///     and has the log's name before anything is used. So the commits that a start has found stay, also if a flush has
///     failed before: the operating system may then show bytes that the disk does not have, and never write them.
///
/// Failures. Without room on the disk the log keeps what it has not written, commits wait, and it tries again with
/// growing pauses; a line tells operators when that begins and when it ends. Every other failure is final: `on_failed`
/// is told once, nothing is accepted any more, and the process is to end, because it is not known what the disk holds.
///
/// Owner: CommitManager.
class CommitLogFile final : public CommitLog {
 public:
  /// Reads the folder's log, if there is one, and begins a new file with it. kMalformed, kUnsupportedVersion: see
  /// read_log(); kNoSpace and kInternal: the disk.
  static Result<std::unique_ptr<CommitLogFile>> open(const CommitLogOptions& options);
  /// The same on another device.
  static Result<std::unique_ptr<CommitLogFile>> open(const CommitLogOptions& options,
                                                     std::unique_ptr<LogDevice> device);
  /// Writes and flushes all appended commits, if there is room for them, and ends the threads. A new beginning that is
  /// being made is dropped. Callbacks may come until the destructor returns.
  ~CommitLogFile() override;
  CommitLogFile(const CommitLogFile&) = delete;
  CommitLogFile& operator=(const CommitLogFile&) = delete;

  /// What the log held when it was opened.
  const CommitLogContents& found() const { return found_; }
  /// open() has made the log: there was none.
  bool created() const { return created_; }

  /// Starts the threads; commits that are appended before wait for that. The callbacks come from these threads, and
  /// must return soon. `on_progress`: progress() has something new; not called again before progress() was.
  /// `on_failed`: once.
  void start(std::function<void()> on_progress, std::function<void(const Status&)> on_failed);

  void append(std::span<const TransactionId> ids) override;
  /// `needed.end` is the position of the last commit that was appended.
  void begin_anew(CommitLogContents needed) override;
  /// Without the beginning, and without commits that the writer has not taken yet.
  uint64_t bytes() const override;

  /// Any thread.
  CommitLogProgress progress();

 private:
  /// A log file, or one that will be: bytes that are encoded for it and not written, and its room. Writer only.
  struct Segment {
    std::unique_ptr<LogFile> file;  // null: the maker has not made it
    std::string name;               // for operators
    uint64_t begin = 0;             // position of the last commit that its beginning has
    uint64_t chain = 0;
    uint64_t nonce = 0;
    std::shared_ptr<const CommitLogContents> needed{};  // its beginning, until the maker has it
    uint64_t size = 0;                                  // of the file
    uint64_t reserved = 0;                              // room of the file
    Buffer encoded{};                                   // written up to `written`
    size_t written = 0;
    uint64_t appended_bytes = 0;  // encoded since its beginning
    uint64_t pause_ns = 0;        // 0: it has room
    uint64_t retry_ns = 0;        // without room: it asks again at that time
  };
  /// A new log that the maker has made.
  struct Made {
    std::unique_ptr<LogFile> file;  // null: cancelled, or failed
    uint64_t nonce = 0;
    uint64_t size = 0;
    uint64_t reserved = 0;
  };

  CommitLogFile(const CommitLogOptions& options, std::unique_ptr<LogDevice> device);

  Status read();
  Status begin_file(const std::string& path);

  // The writer.
  void write_loop();
  /// Waits for something to do, and takes it over: ids, and what the core and the other threads have left. False: the
  /// writer has to end.
  bool take(std::vector<TransactionId>& ids);
  void take_new_beginning();  // these three with mutex_
  void take_made();
  void take_replaced();
  void encode(std::span<const TransactionId> ids);
  /// Writes what the files can take.
  Status write_all();
  Status write(Segment& segment);
  Status make_room(Segment& segment, uint64_t bytes);
  /// `left`: bytes that can be written all the same.
  void note_full(Segment& segment, uint64_t left);
  void tell_written();
  void start_maker();
  void stop_maker();
  /// Everything that was taken is written where it has to be.
  bool all_written() const;
  /// How long to wait for room on the disk; 0: no file lacks room.
  uint64_t pause_ns() const;

  // The maker.
  void make(const CommitLogContents& needed, uint64_t nonce);
  /// Null: cancelled.
  Result<std::unique_ptr<LogFile>> write_new_log(Bytes beginning, uint64_t room);
  /// True: cancelled.
  bool pause_maker(uint64_t pause_ns);

  // The flusher.
  void flush_loop();

  void fail(const Status& status);
  /// With mutex_. True: on_progress_ has to be called.
  bool has_news();

  // Const after open() or start().
  const CommitLogOptions options_;
  const std::unique_ptr<LogDevice> device_;
  CommitLogContents found_;
  bool created_ = false;
  std::function<void()> on_progress_;
  std::function<void(const Status&)> on_failed_;

  // The core's thread only.
  uint64_t appended_ = 0;  // position

  // The writer's thread only, once it runs. In front the log, then the new log, then one that waits for step 4.
  std::deque<Segment> segments_;
  uint64_t taken_ = 0;  // position: commits up to here are encoded
  Thread maker_;
  bool replacing_ = false;  // step 3

  Mutex mutex_;
  Condition writer_due_;   // waits for all that take() looks at
  Condition flusher_due_;  // waits for unflushed_since_ns_, replacement_, retired_, writer_ended_, failed_
  Condition maker_due_;    // waits for maker_cancelled_
  // Guarded by mutex_.
  std::vector<TransactionId> queue_;         // appended and not taken
  std::optional<CommitLogContents> wanted_;  // begin_anew() that the writer has not seen
  std::optional<Made> made_;                 // the maker has ended
  bool maker_cancelled_ = false;
  uint64_t written_ = 0;             // position: written to all files that it has to be in
  uint64_t unflushed_since_ns_ = 0;  // 0: no flush is due
  CommitLogProgress progress_;
  bool told_ = false;               // on_progress_ was called since progress() was
  LogFile* log_ = nullptr;          // of segments_[0], or of segments_[1] once that has replaced it
  LogFile* replacement_ = nullptr;  // step 3: the new log; null when the flusher is done
  bool replaced_ = false;           // step 4: the writer has to drop the old log
  /// Files that are not needed any more. The flusher closes them: a file without a name goes when it is closed, and
  /// that takes the file system a while.
  std::vector<std::unique_ptr<LogFile>> retired_;
  bool stopping_ = false;
  bool writer_ended_ = false;
  Status failed_;
  // Written with mutex_ by the writer and begin_anew(), read by the core without: an estimate, and begin_anew() is on
  // the reader's own thread.
  Env::Atomic<uint64_t> bytes_{0};

  Thread writer_;
  Thread flusher_;
};

}  // namespace loam::commit
