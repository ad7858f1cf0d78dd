#include "commit-manager/src/core/commit_pipeline.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::commit {

namespace {

/// Interval between two checks for ids that may be truncated.
constexpr uint64_t kLogCheckNs = 1'000'000'000;
/// A rewrite starts when the bytes appended since the checkpoint exceed this number plus the size of the checkpoint.
/// So rewrites cost about as much as the appends at most.
constexpr uint64_t kLogBytes = 8u << 20;
/// Estimated bytes of a range of ids in the checkpoint, rounded up.
constexpr uint64_t kRangeBytes = 4;

}  // namespace

CommitPipeline::CommitPipeline(Transactions& transactions, CommitLog* log, const CommitLogContents& contents)
    : transactions_(transactions),
      log_(log),
      end_(contents.end),
      progress_{contents.end, contents.end},
      ranges_(contents.committed.size()) {
  committed_.restore(contents, 0);
}

/// The outcome of the commits is fixed from here on. outcome() answers pending until the log has accepted them, then
/// committed, because committed_ has them.
std::optional<CommitLogProgress> CommitPipeline::append(uint64_t served_ns) {
  if (unappended_.empty()) return std::nullopt;
  for (const TransactionId id : unappended_) committed_.add(id, served_ns);
  invisible_.insert(invisible_.end(), unappended_.begin(), unappended_.end());
  end_ += unappended_.size();
  if (log_ == nullptr) {
    unappended_.clear();
    return CommitLogProgress{end_, end_};
  }
  Env::pause_point("manager.commit.before_append");
  log_->append(unappended_);
  unappended_.clear();
  Env::pause_point("manager.commit.appended");
  return std::nullopt;
}

void CommitPipeline::advance(const CommitLogProgress& progress) {
  const CommitLogProgress before = std::exchange(progress_, progress);
  LOAM_CHECK(before.accepted <= progress.accepted && before.flushed <= progress.flushed &&
                 progress.flushed <= progress.accepted && progress.accepted <= end_,
             "positions of the commit log never fall, and end at the last appended commit");
  make_visible(progress.accepted - before.accepted, progress.flushed);
  pass_on_flushed();
}

/// Later snapshots see the next `count` commits of the log from here on. Commits up to position `flushed` are on the
/// disk.
void CommitPipeline::make_visible(uint64_t count, uint64_t flushed) {
  if (count == 0) return;
  const auto end = invisible_.begin() + static_cast<ptrdiff_t>(count);
  ids_.assign(invisible_.begin(), end);
  invisible_.erase(invisible_.begin(), end);
  // The first `on_disk` of them are flushed already; the others stay unflushed until pass_on_flushed().
  const uint64_t first = progress_.accepted - count + 1;
  const size_t on_disk = flushed < first ? 0 : std::min<uint64_t>(count, flushed - first + 1);
  const std::span<const TransactionId> all(ids_);
  transactions_.finish_commits(all.first(on_disk), false);
  transactions_.finish_commits(all.subspan(on_disk), true);
  unflushed_.insert(unflushed_.end(), ids_.begin() + static_cast<ptrdiff_t>(on_disk), ids_.end());
}

void CommitPipeline::pass_on_flushed() {
  const uint64_t left = progress_.accepted - progress_.flushed;
  if (unflushed_.size() <= left) return;
  const auto end = unflushed_.begin() + static_cast<ptrdiff_t>(unflushed_.size() - left);
  ids_.assign(unflushed_.begin(), end);
  unflushed_.erase(unflushed_.begin(), end);
  transactions_.flush(ids_);
}

wire::Outcome CommitPipeline::outcome(TransactionId id) const {
  if (transactions_.owner(id) != SessionId()) return wire::Outcome::kPending;
  if (committed_.contains(id)) return wire::Outcome::kCommitted;
  if (id.value == 0 || id > transactions_.last_id() || committed_.forgotten(id)) return wire::Outcome::kForgotten;
  return wire::Outcome::kAborted;
}

bool CommitPipeline::maintain(uint64_t served_ns, uint64_t keep_ns, const CompleteAtAllNodes& complete_at_all_nodes) {
  if (served_ns - checked_ns_ < kLogCheckNs && !Env::buggify("manager.log.look")) return false;
  checked_ns_ = served_ns;
  // Ids that are not finished or not given out yet may still be committed, so they stay.
  const auto needed_no_more = [&](TransactionId first, TransactionId last) {
    return transactions_.finished(first, last) && complete_at_all_nodes(first, last);
  };
  const bool truncated = committed_.truncate(served_ns, keep_ns, needed_no_more);
  if (truncated) Env::probe("manager.log.cut");
  if (log_ == nullptr) return false;
  if (log_->bytes() < kLogBytes + ranges_ * kRangeBytes && !Env::buggify("manager.log.short")) return false;
  Env::probe("manager.log.rewritten");
  CommitLogContents needed{committed_.ranges(), committed_.truncated_up_to(), end_};
  ranges_ = needed.committed.size();
  log_->rewrite(std::move(needed));
  return true;
}

void CommitPipeline::report(Statistics& statistics) const {
  statistics.log_end = end_;
  statistics.log_accepted = progress_.accepted;
  statistics.log_flushed = progress_.flushed;
  statistics.log_truncated_up_to = committed_.truncated_up_to().value;
  statistics.log_ranges = ranges_;
  statistics.log_bytes = log_ == nullptr ? 0 : log_->bytes();
}

void CommitPipeline::check_invariants() const {
  LOAM_CHECK(unappended_.empty(), "accepted commits are appended to the commit log");
  LOAM_CHECK(end_ - progress_.accepted == invisible_.size() &&
                 progress_.accepted - progress_.flushed == unflushed_.size() &&
                 transactions_.unflushed() == unflushed_.size(),
             "each appended commit is invisible, unflushed or flushed, by its position");
}

}  // namespace loam::commit
