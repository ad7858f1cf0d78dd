// The path of a commit through the commit manager, from its acceptance to the truncation of its record.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/core/committed_ids.h"
#include "commit-manager/src/core/transactions.h"

namespace loam::commit {

/// Brings commits to the commit log, to later snapshots and to publications, in one order [R1, commit order; R4,
/// outcomes from the commit log; R11, commit log and restart of the commit manager; decision 0021].
///
/// The states of a commit:
///
///     accepted ── append() ──▶ appended ── the log accepts it ──▶ visible ── the log flushes it ──▶ flushed
///
/// * accepted: the commit waits in unappended() for the end of the poll round. It has no position yet.
/// * appended: the log has it, so its outcome is fixed. It has a position: commits count over all epochs.
/// * visible: later snapshots see it, and its client gets the reply. Publications count it as open.
/// * flushed: its record is on the disk. Publications count it as complete, because a storage node cannot undo what it
///   does after a publication (R13, atomic publication). In mode `none` all three steps happen at once.
///
/// The log keeps the id until no storage node and no client needs the outcome (maintain()).
///
/// Owner: Core. One thread.
class CommitPipeline {
 public:
  /// True if no storage node needs the outcomes of the ids from `first` to `last`.
  using CompleteAtAllNodes = std::function<bool(TransactionId first, TransactionId last)>;

  /// `log` is null in mode `none`. `transactions` and `log` outlive the pipeline.
  CommitPipeline(Transactions& transactions, CommitLog* log, const CommitLogContents& contents);

  /// Commits that were accepted in this poll round and are not appended. Transactions::complete() adds to them.
  std::vector<TransactionId>& unappended() { return unappended_; }
  /// Returns the position that the last accepted commit has or will get.
  uint64_t last_position() const { return end_ + unappended_.size(); }
  /// Appends all accepted commits to the log, as one batch. Called at the end of each poll round. Returns the progress
  /// of the log in mode `none`, where it accepts at once; the caller passes it to advance().
  std::optional<CommitLogProgress> append(uint64_t served_ns);
  /// Makes the commits visible that the log has accepted. Lets publications count the commits as complete that it has
  /// flushed.
  void advance(const CommitLogProgress& progress);
  const CommitLogProgress& progress() const { return progress_; }

  /// Returns the outcome of a transaction. An id is pending while its session may still complete it, and while its
  /// accepted commit is not in the log. The log decides every other id (R4). That includes ids of an ended session,
  /// whether or not recovery has undone their writes: the commit manager has fixed their outcome at the end of the
  /// session, and it never changes.
  wire::Outcome outcome(TransactionId id) const;

  /// Truncates ids that are older than `keep_ns` and whose outcome is not needed any more. Starts a rewrite of a log
  /// that has grown long, and returns true if it does. Does nothing if the last call was a short time ago. The times
  /// count while the commit manager runs.
  bool maintain(uint64_t served_ns, uint64_t keep_ns, const CompleteAtAllNodes& complete_at_all_nodes);

  void report(Statistics& statistics) const;
  void check_invariants() const;

 private:
  void make_visible(uint64_t count, uint64_t flushed);
  void pass_on_flushed();

  Transactions& transactions_;
  CommitLog* const log_;
  CommittedIds committed_;
  std::vector<TransactionId> unappended_;
  std::deque<TransactionId> invisible_;  ///< appended, not visible; the last one has position end_
  std::deque<TransactionId> unflushed_;  ///< visible, not on the disk; the last has position progress_.accepted
  uint64_t end_;                         ///< position of the last appended commit
  CommitLogProgress progress_;
  uint64_t checked_ns_ = 0;         ///< time of the last check of maintain()
  uint64_t ranges_;                 ///< ranges of ids in the checkpoint of the log
  std::vector<TransactionId> ids_;  ///< scratch
};

}  // namespace loam::commit
