// Writes rows into a table, many batches at once, and keeps account of every line.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <loam/client/client.h>

#include "common/base/status.h"
#include "deploy/cli/src/import/line_ranges.h"

namespace loam::cli {

/// Rows of one batch are one transaction (in a transactional table): all of them are imported, or none.
struct Batch {
  struct Row {
    LineRange lines;         ///< of the file
    std::optional<Key> key;  ///< none: from the counter
    size_t end = 0;          ///< of its bytes in `bytes`; they begin where the row before ends
  };
  std::vector<Row> rows;
  Buffer bytes;

  void add(LineRange lines, std::optional<Key> key, Bytes row);
  Bytes row(size_t index) const;
};

struct LoaderOptions {
  bool skip_bad_rows = false;
  size_t batches_in_flight = 16;
};

/// A row that was not imported.
struct BadRow {
  uint64_t line = 0;
  std::string message;
};

/// Bad rows beyond these are counted, not listed.
inline constexpr size_t kMaxListedBadRows = 1'000;

/// What became of the rows.
struct LoadOutcome {
  uint64_t imported = 0;
  uint64_t bad = 0;
  LineRanges imported_lines;
  LineRanges doubtful_lines;     ///< of a batch whose commit has an unknown outcome
  std::vector<BadRow> bad_rows;  ///< in the order of lines
  Status fatal;                  ///< what ended the import, other than a bad row
};

/// Takes batches from one ordinary thread and writes each in a fiber of the client, at most batches_in_flight at once.
///
/// A batch that fails for a reason that lies in its rows (a key that exists) is split until the row is found, so that
/// exactly the bad rows stay out. The first bad row ends the import unless bad rows are skipped; any other error always
/// does. What is being written then is finished or undone, and the account stays exact.
///
/// Owner: one import, from one thread; destroyed before the client. State shared with the fibers is guarded by mutex_,
/// which no fiber holds while it waits.
class Loader {
 public:
  /// `counter`: for rows without a key; may be null if there are none.
  Loader(client::Client& client, client::Table table, client::Counter* counter, LoaderOptions options);
  /// Waits for everything that was submitted.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Blocks while too many are in flight.
  void submit(Batch batch);
  /// Notes a row that did not even become a record. What was submitted before it is still written.
  void add_bad_row(uint64_t line, std::string message);
  /// Ends the import with an error that lies elsewhere.
  void fail(Status status);
  /// True after a failure in a fiber: nothing more is written.
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  /// True if nothing that was submitted is still being written.
  bool idle();
  uint64_t imported() const { return imported_.load(std::memory_order_relaxed); }

  /// Waits for all batches; the account is then complete.
  LoadOutcome finish();

 private:
  void write(Batch& batch);
  void write_rows(Batch& batch, size_t begin, size_t end);
  Status attempt(Batch& batch, size_t begin, size_t end);
  Status attempt_plain(Batch& batch, size_t index);
  Status assign_keys(Batch& batch, size_t begin, size_t end);
  void note_imported(const Batch& batch, size_t begin, size_t end);
  void note_fatal(const Batch& batch, size_t begin, size_t end, const Status& status);
  void wait_until_at_most(size_t in_flight);

  client::Client& client_;
  const client::Table table_;
  client::Counter* const counter_;
  const LoaderOptions options_;

  // Written by fibers under mutex_, read by the submitting thread without it, for progress only.
  std::atomic<uint64_t> imported_{0};
  // Set once; release/acquire so that who sees it also sees the outcome that caused it.
  std::atomic<bool> stopped_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t in_flight_ = 0;
  LoadOutcome outcome_;
};

}  // namespace loam::cli
