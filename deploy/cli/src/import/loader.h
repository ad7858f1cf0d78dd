// Writes rows into a table, many batches at once, and records the outcome of every line.
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

/// Rows that are written together. In a transactional table a batch is one transaction: all of its rows are imported,
/// or none.
struct Batch {
  /// One row; its bytes are in `bytes`.
  struct Row {
    LineRange lines;         ///< its lines in the file
    std::optional<Key> key;  ///< none: the loader draws a key from the counter
    size_t end = 0;          ///< end of its bytes in `bytes`; they begin at the end of the row before
  };
  std::vector<Row> rows;
  Buffer bytes;

  void add(LineRange lines, std::optional<Key> key, Bytes row);
  Bytes row(size_t index) const;
};

/// Options of a Loader.
struct LoaderOptions {
  bool skip_bad_rows = false;     ///< count a bad row and continue, instead of ending the import
  size_t batches_in_flight = 16;  ///< upper bound on the batches that are being written
};

/// A row that was not imported.
struct BadRow {
  uint64_t line = 0;
  std::string message;
};

/// Upper bound on the listed bad rows; the loader only counts further ones.
inline constexpr size_t kMaxListedBadRows = 1'000;

/// The outcome of all rows that a Loader received.
struct LoadOutcome {
  uint64_t imported = 0;
  uint64_t bad = 0;
  LineRanges imported_lines;
  LineRanges unknown_outcome_lines;  ///< lines of batches whose commit has an unknown outcome
  std::vector<BadRow> bad_rows;      ///< in the order of their lines
  Status fatal;                      ///< the error that ended the import, unless a bad row did
};

/// Writes batches into a table. One ordinary thread submits them; each is written in a fiber of the client, at most
/// `batches_in_flight` at once.
///
/// If a batch fails because of one of its rows (for example a key that exists), the loader splits the batch until it
/// has found the row, so that exactly the bad rows stay out. The first bad row ends the import unless `skip_bad_rows`
/// is set; any other error always does. Fibers that are writing a batch at that moment commit or abort it, and the
/// outcome covers every line.
///
/// Owner: one import, which uses it from one thread and destroys it before the client. mutex_ guards the state that is
/// shared with the fibers; no fiber holds it while it waits.
class Loader {
 public:
  /// `counter` gives the keys of rows without one; it may be null if every row has a key.
  Loader(client::Client& client, client::Table table, client::Counter* counter, LoaderOptions options);
  /// Waits for all submitted batches.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Hands a batch to a fiber. Blocks while `batches_in_flight` batches are being written.
  void submit(Batch batch);
  /// Records a row that could not be converted. Batches submitted before are still written.
  void add_bad_row(uint64_t line, std::string message);
  /// Ends the import with an error that did not arise in the loader.
  void fail(Status status);
  /// True after an error in a fiber; the loader writes no further batch.
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  /// True if no submitted batch is being written.
  bool idle();
  /// Number of rows imported so far, for progress.
  uint64_t imported() const { return imported_.load(std::memory_order_relaxed); }

  /// Waits for all batches and returns the complete outcome.
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

  // Fibers write it under mutex_; the submitting thread reads it without, relaxed, because progress may be stale.
  std::atomic<uint64_t> imported_{0};
  // Set once. Release pairs with the acquire in stopped(): a thread that sees true also sees the outcome that caused
  // it.
  std::atomic<bool> stopped_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t in_flight_ = 0;
  LoadOutcome outcome_;
};

}  // namespace loam::cli
