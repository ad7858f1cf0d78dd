// A commit log on a disk in memory, for tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/src/log/commit_log_file.h"
#include "commit-manager/testing/memory_disk.h"
#include "common/base/log.h"
#include "common/testing/eventually.h"

namespace loam::commit {

/// Captures the log lines of the program since the last clear().
class CapturedLog {
 public:
  CapturedLog() {
    clear();
    set_log_sink([](const LogLine& line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line.level, line.message);
    });
  }
  ~CapturedLog() { set_log_sink(nullptr); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  static size_t count(LogLevel level, std::string_view part) {
    const std::lock_guard lock(mutex_);
    size_t count = 0;
    for (const auto& [of_line, line] : lines_) count += of_line == level && line.find(part) != std::string::npos;
    return count;
  }
  static void clear() {
    const std::lock_guard lock(mutex_);
    lines_.clear();
  }

 private:
  static inline std::mutex mutex_;
  static inline std::vector<std::pair<LogLevel, std::string>> lines_;
};

/// Plays the core: appends ids and knows all appended ids.
class LogHarness {
 public:
  explicit LogHarness(CommitLogMode mode) {
    options.folder = "memory";
    options.mode = mode;
    options.flush_after_ns = 100'000;
    options.first_pause_ns = 50'000;
    options.longest_pause_ns = 400'000;
  }

  /// Opens the log, and starts its threads unless the argument says otherwise.
  Status open(bool starts = true) {
    log.reset();
    auto opened = CommitLogFile::open(options, disk.device());
    if (!opened.ok()) return opened.status();
    log = std::move(opened).value();
    if (starts) start();
    return ok_status();
  }
  void start() {
    log->start([this] { calls.fetch_add(1, std::memory_order_relaxed); },  // relaxed: a counter
               [this](const Status& status) {
                 const std::lock_guard lock(mutex_);
                 failures_.push_back(status);
               });
  }
  /// Appends a batch of `count` ids. Each is two above the previous one, so that no two ids share a range.
  void append(size_t count) {
    std::vector<TransactionId> batch;
    for (size_t i = 0; i < count; ++i) batch.push_back(ids.emplace_back(2 * ids.size() + 1));
    log->append(batch);
  }
  void append_batches(size_t count) {
    for (size_t i = 0; i < count; ++i) append(1);
  }
  /// Returns the content that a rewrite needs: all appended ids except the first `dropped`.
  CommitLogContents needed(size_t dropped = 0) const {
    CommitLogContents contents{.committed = {}, .truncated_up_to = TransactionId(2 * dropped), .end = ids.size()};
    for (size_t i = dropped; i < ids.size(); ++i) contents.committed.push_back({ids[i], ids[i]});
    return contents;
  }
  /// Number of calls of on_progress. Relaxed: a counter.
  uint64_t progress_calls() const { return calls.load(std::memory_order_relaxed); }
  [[nodiscard]] bool all_accepted() {
    return testing::eventually([this] { return log->progress().accepted == ids.size(); });
  }
  [[nodiscard]] bool all_flushed() {
    return testing::eventually([this] { return log->progress().flushed == ids.size(); });
  }
  /// True if the checkpoint of the log on the disk counts the commits up to this position.
  [[nodiscard]] bool begins_at(uint64_t position) {
    return testing::eventually([&] { return on_disk().checkpoint_end == position; });
  }
  [[nodiscard]] bool has_failed() {
    return testing::eventually([this] { return !failures().empty(); });
  }
  std::vector<Status> failures() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }
  LogReadResult on_disk() {
    auto found = read_log(disk.log());
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return found.ok() ? std::move(found).value() : LogReadResult();
  }

  MemoryDisk disk;
  CommitLogOptions options;
  std::vector<TransactionId> ids;  // by position, from 1
  std::atomic<uint64_t> calls{0};  // of on_progress
  std::unique_ptr<CommitLogFile> log;

 private:
  std::mutex mutex_;
  std::vector<Status> failures_;
};

}  // namespace loam::commit
