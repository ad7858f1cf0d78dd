// The path of a commit through the commit manager [R1, commit order; R4, outcomes from the commit log; R11, commit
// log and restart of the commit manager; decision 0021]:
//
//   1. Core::Impl::complete()   accepts it from the client and adds it to unappended_commits_.
//   2. append_commits()         appends all commits of the poll round to the log, as one batch. From here on the
//                               commit has a position.
//   3. apply_log_progress()     makes it visible to snapshots and answers it, when the log has accepted its position.
//   4. flush_commits()          lets publications count it, when its record is on the disk.
//   5. maintain_log()           truncates it, when no storage node and no client needs its outcome any more.
//
// A commit is first visible and then answered, so a transaction that begins after the answer sees it. Visibility
// needs no flush in mode `os`; publications do, because a storage node acts on them for good (R13, atomic
// publication).
#include <algorithm>
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::commit {

namespace {

/// Interval between two checks for ids that may be truncated.
constexpr uint64_t kLogCheckNs = 1'000'000'000;
/// A rewrite starts when the bytes appended since the checkpoint exceed this number plus the size of the checkpoint.
/// So rewrites cost about as much as the appends at most.
constexpr uint64_t kLogBytes = 8u << 20;
/// Upper bound on the publications whose content is kept until the nodes acknowledge them. Acknowledgements of older
/// ones are ignored, which only delays truncation.
constexpr size_t kMaxPublished = 256;
/// Estimated bytes of a range of ids in the checkpoint, rounded up.
constexpr uint64_t kRangeBytes = 4;

}  // namespace

/// Called at the end of each poll round. The outcome of the commits is fixed from here on: outcome() answers pending
/// until the log has accepted them, and then committed, because committed_ has them.
void Core::Impl::append_commits() {
  if (unappended_commits_.empty()) return;
  for (const TransactionId id : unappended_commits_) committed_.add(id, served_ns_);
  invisible_commits_.insert(invisible_commits_.end(), unappended_commits_.begin(), unappended_commits_.end());
  log_end_ += unappended_commits_.size();
  if (log_ == nullptr) {  // mode none: accepted at once
    unappended_commits_.clear();
    return apply_log_progress({log_end_, log_end_});
  }
  Env::pause_point("manager.commit.before_append");
  log_->append(unappended_commits_);
  unappended_commits_.clear();
  Env::pause_point("manager.commit.appended");
}

void Core::Impl::on_log_progress(const CommitLogProgress& progress) {
  if (!durable_status_.ok()) return;
  apply_log_progress(progress);
  run_deferred_work();
}

void Core::Impl::apply_log_progress(const CommitLogProgress& progress) {
  const CommitLogProgress before = std::exchange(log_progress_, progress);
  LOAM_CHECK(before.accepted <= progress.accepted && before.flushed <= progress.flushed &&
                 progress.flushed <= progress.accepted && progress.accepted <= log_end_,
             "positions of the commit log never fall, and end at the last appended commit");
  // Visible first, answered below: a client that has its answer finds the commit in every later snapshot.
  finish_commits(progress.accepted - before.accepted, progress.flushed);
  flush_commits();
  history_.log = log_progress_.flushed;  // storage nodes are told flushed commits only (R10)
  while (!pending_commit_replies_.empty() && pending_commit_replies_.front().position <= log_progress_.accepted) {
    const PendingCommitReply due = std::move(pending_commit_replies_.front());
    pending_commit_replies_.pop_front();
    const auto session = sessions_.find(due.session);
    // The session has ended meanwhile. The commit stands; its client asks for the outcome under its next session
    // (R4).
    if (session == sessions_.end()) continue;
    send_reply(session->second, due.sequence, due.answer);
    Env::pause_point("manager.complete.answered");
  }
}

/// Later snapshots see these commits from here on.
void Core::Impl::finish_commits(uint64_t count, uint64_t flushed) {
  if (count == 0) return;
  const auto end = invisible_commits_.begin() + static_cast<ptrdiff_t>(count);
  visible_commits_.assign(invisible_commits_.begin(), end);
  invisible_commits_.erase(invisible_commits_.begin(), end);
  // The first `on_disk` of them are flushed already; the others stay unflushed until flush_commits().
  const uint64_t first = log_progress_.accepted - count + 1;
  const size_t on_disk = flushed < first ? 0 : std::min<uint64_t>(count, flushed - first + 1);
  const std::span<const TransactionId> all(visible_commits_);
  transactions_.finish_commits(all.first(on_disk), false);
  transactions_.finish_commits(all.subspan(on_disk), true);
  unflushed_.insert(unflushed_.end(), visible_commits_.begin() + static_cast<ptrdiff_t>(on_disk),
                    visible_commits_.end());
}

void Core::Impl::flush_commits() {
  const uint64_t left = log_progress_.accepted - log_progress_.flushed;
  if (unflushed_.size() <= left) return;
  const auto end = unflushed_.begin() + static_cast<ptrdiff_t>(unflushed_.size() - left);
  visible_commits_.assign(unflushed_.begin(), end);
  unflushed_.erase(unflushed_.begin(), end);
  transactions_.flush(visible_commits_);
}

void Core::Impl::on_log_failed(const Status& why) {
  if (!durable_status_.ok()) return;
  durable_status_ = why;
  outbox_.log_event("the commit log failed; the commit manager sends nothing more: " + why.to_string());
}

/// An id is pending while its session may still complete it, and while its accepted commit is not in the log. The log
/// decides every other id (R4). That includes ids of an ended session, whether or not recovery has undone their
/// writes: the commit manager has fixed their outcome at the end of the session, and it never changes.
wire::Outcome Core::Impl::outcome(TransactionId id) const {
  if (transactions_.owner(id) != SessionId()) return wire::Outcome::kPending;
  if (committed_.contains(id)) return wire::Outcome::kCommitted;
  if (id.value == 0 || id > transactions_.last_id() || committed_.forgotten(id)) return wire::Outcome::kForgotten;
  return wire::Outcome::kAborted;
}

// ---- truncation of the log -----------------------------------------------------------------------------------------

/// Makes the next publication, and keeps its snapshot until every connected node has acknowledged it or a newer one.
void Core::Impl::make_publication(Publication& publication) {
  transactions_.publish(now_ns_, publication);
  published_[publication.number] = std::make_shared<const Snapshot>(publication.later);
  if (published_.size() > kMaxPublished) published_.erase(published_.begin());
}

void Core::Impl::handle_publication_ack(NodeId node, const wire::PublishReply& installed) {
  const auto published = published_.find(installed.number);
  if (installed.epoch != options_.epoch || published == published_.end()) {
    Env::probe("manager.publication.acknowledged_too_late");
    return;
  }
  auto& [number, known] = acknowledged_publications_[node];
  if (number >= installed.number) return;
  number = installed.number;
  known = published->second;
  // Drop publications that all connected nodes have acknowledged or replaced by a newer one.
  uint64_t lowest = UINT64_MAX;
  for (const auto& [connected, peer] : node_peers_) {
    const auto at = acknowledged_publications_.find(connected);
    lowest = std::min(lowest, at == acknowledged_publications_.end() ? 0 : at->second.first);
  }
  published_.erase(published_.begin(), published_.lower_bound(lowest));
}

bool Core::Impl::complete_at_all_nodes(TransactionId first, TransactionId last) const {
  for (const NodeStatus& node : catalog_.nodes()) {
    if (node.shards == 0 || node.memory_lost) continue;  // it holds no intents, so it needs no outcome
    const auto known = acknowledged_publications_.find(node.info.id);
    if (known == acknowledged_publications_.end()) return false;
    // The node has dropped the intents of every id that this publication counts as complete (R5, intents before
    // answers).
    const Snapshot& complete = *known->second.second;
    if (last.value > complete.high().value) return false;
    const auto open = std::ranges::lower_bound(complete.open(), Version(first.value));
    if (open != complete.open().end() && open->value <= last.value) return false;
  }
  return true;
}

void Core::Impl::maintain_log() {
  if (restarting_ || (served_ns_ - log_checked_ns_ < kLogCheckNs && !Env::buggify("manager.log.look"))) return;
  log_checked_ns_ = served_ns_;
  // Ids that are not finished or not given out yet may still be committed, so they stay.
  const auto needed_no_more = [this](TransactionId first, TransactionId last) {
    return transactions_.finished(first, last) && complete_at_all_nodes(first, last);
  };
  const bool cut = committed_.truncate(served_ns_, options_.outcome_keep_ns, needed_no_more);
  if (cut) Env::probe("manager.log.cut");
  if (log_ == nullptr) return;
  if (log_->bytes() < kLogBytes + log_ranges_ * kRangeBytes && !Env::buggify("manager.log.short")) return;
  Env::probe("manager.log.rewritten");
  CommitLogContents needed{committed_.ranges(), committed_.truncated_up_to(), log_end_};
  log_ranges_ = needed.committed.size();
  ++counts_.log_rewrites;
  log_->rewrite(std::move(needed));
}

}  // namespace loam::commit
