// Commits. The commit manager accepts a commit, appends it to the commit log, answers it and lets snapshots see it when
// the log says so, and cuts it from the log when it is not needed any more [R1, R4, R11, decision 0021].
#include <algorithm>
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::commit {

namespace {

/// Interval between two looks for ids that may be cut from the commit log.
constexpr uint64_t kLogLookNs = 1'000'000'000;
/// The commit log begins anew when the bytes appended since its beginning exceed this, plus the size of that beginning.
constexpr uint64_t kLogBytes = 8u << 20;
/// Publications whose content is kept until the nodes acknowledge them, at most. Acknowledgements of older ones are
/// ignored.
constexpr size_t kMaxPublished = 256;
/// Bytes that a range of ids takes in the log, at most on average.
constexpr uint64_t kRangeBytes = 4;

}  // namespace

/// Called at the end of each round, before anything of it is answered that depends on it.
void Core::Impl::append_commits() {
  if (accepted_.empty()) return;
  for (const TransactionId id : accepted_) committed_.add(id, served_ns_);
  unseen_.insert(unseen_.end(), accepted_.begin(), accepted_.end());
  log_end_ += accepted_.size();
  if (log_ == nullptr) {
    accepted_.clear();
    return logged({log_end_, log_end_});
  }
  Env::pause_point("manager.commit.before_append");
  log_->append(accepted_);
  accepted_.clear();
  Env::pause_point("manager.commit.appended");
}

void Core::Impl::log_moved(const CommitLogProgress& progress) {
  if (!durable_status_.ok()) return;
  logged(progress);
  settle();
}

void Core::Impl::logged(const CommitLogProgress& progress) {
  const CommitLogProgress before = std::exchange(log_progress_, progress);
  LOAM_CHECK(before.accepted <= progress.accepted && before.flushed <= progress.flushed &&
                 progress.flushed <= progress.accepted && progress.accepted <= log_end_,
             "the commit log goes forwards, and not beyond what it was given");
  finish_commits(progress.accepted - before.accepted, progress.flushed);
  flush_commits();
  history_.log = log_progress_.flushed;
  while (!waiting_commits_.empty() && waiting_commits_.front().position <= log_progress_.accepted) {
    const WaitingCommit due = std::move(waiting_commits_.front());
    waiting_commits_.pop_front();
    const auto session = sessions_.find(due.session);
    if (session == sessions_.end()) continue;
    answer(session->second, due.sequence, due.answer);
    Env::pause_point("manager.complete.answered");
  }
}

/// Later snapshots see them from here on.
void Core::Impl::finish_commits(uint64_t count, uint64_t flushed) {
  if (count == 0) return;
  const auto end = unseen_.begin() + static_cast<ptrdiff_t>(count);
  seen_.assign(unseen_.begin(), end);
  unseen_.erase(unseen_.begin(), end);
  // Those that are on the disk already, and those that are not.
  const uint64_t first = log_progress_.accepted - count + 1;
  const size_t on_disk = flushed < first ? 0 : std::min<uint64_t>(count, flushed - first + 1);
  const std::span<const TransactionId> all(seen_);
  transactions_.finish_commits(all.first(on_disk), false);
  transactions_.finish_commits(all.subspan(on_disk), true);
  unflushed_.insert(unflushed_.end(), seen_.begin() + static_cast<ptrdiff_t>(on_disk), seen_.end());
}

void Core::Impl::flush_commits() {
  const uint64_t left = log_progress_.accepted - log_progress_.flushed;
  if (unflushed_.size() <= left) return;
  const auto end = unflushed_.begin() + static_cast<ptrdiff_t>(unflushed_.size() - left);
  seen_.assign(unflushed_.begin(), end);
  unflushed_.erase(unflushed_.begin(), end);
  transactions_.flush(seen_);
}

void Core::Impl::log_failed(const Status& why) {
  if (!durable_status_.ok()) return;
  durable_status_ = why;
  outbox_.note("the commit log failed, nothing more is said to anybody: " + why.to_string());
}

/// An id is pending while its session may still complete it, and while the log has not taken its commit. The log
/// decides every other id (R4). That includes ids of an ended session, whether or not recovery has undone their writes.
wire::Outcome Core::Impl::outcome(TransactionId id) const {
  if (transactions_.owner(id) != SessionId()) return wire::Outcome::kPending;
  if (committed_.contains(id)) return wire::Outcome::kCommitted;
  if (id.value == 0 || id > transactions_.last_id() || committed_.forgotten(id)) return wire::Outcome::kForgotten;
  return wire::Outcome::kAborted;
}

// ---- what the log has to keep --------------------------------------------------------------------------------------

/// Makes the next publication, and keeps its snapshot until every connected node has acknowledged it or a newer one.
void Core::Impl::make_publication(Publication& publication) {
  transactions_.publish(now_ns_, publication);
  published_[publication.number] = std::make_shared<const Snapshot>(publication.later);
  if (published_.size() > kMaxPublished) published_.erase(published_.begin());
}

void Core::Impl::publication_installed(NodeId node, const wire::PublicationInstalled& installed) {
  const auto published = published_.find(installed.number);
  if (installed.epoch != options_.epoch || published == published_.end()) {
    Env::probe("manager.publication.acknowledged_too_late");
    return;
  }
  auto& [number, known] = known_by_[node];
  if (number >= installed.number) return;
  number = installed.number;
  known = published->second;
  uint64_t lowest = UINT64_MAX;
  for (const auto& [connected, peer] : node_peers_) {
    const auto at = known_by_.find(connected);
    lowest = std::min(lowest, at == known_by_.end() ? 0 : at->second.first);
  }
  published_.erase(published_.begin(), published_.lower_bound(lowest));
}

bool Core::Impl::known_complete(TransactionId first, TransactionId last) const {
  for (const NodeStatus& node : catalog_.nodes()) {
    if (node.shards == 0 || node.memory_lost) continue;  // it has no intent
    const auto known = known_by_.find(node.info.id);
    if (known == known_by_.end()) return false;
    const Snapshot& complete = *known->second.second;
    if (last.value > complete.high().value) return false;
    const auto open = std::ranges::lower_bound(complete.open(), Version(first.value));
    if (open != complete.open().end() && open->value <= last.value) return false;
  }
  return true;
}

void Core::Impl::look_at_log() {
  if (restarting_ || (served_ns_ - log_looked_ns_ < kLogLookNs && !Env::rare("manager.log.look"))) return;
  log_looked_ns_ = served_ns_;
  // Ids that are not finished, or not given out yet, may still be committed.
  const auto needed_no_more = [this](TransactionId first, TransactionId last) {
    return transactions_.finished(first, last) && known_complete(first, last);
  };
  const bool cut = committed_.cut(served_ns_, options_.outcome_keep_ns, needed_no_more);
  if (cut) Env::probe("manager.log.cut");
  if (log_ == nullptr) return;
  if (log_->bytes() < kLogBytes + log_ranges_ * kRangeBytes && !Env::rare("manager.log.short")) return;
  Env::probe("manager.log.begun_anew");
  CommitLogContents needed{committed_.ranges(), committed_.cut_up_to(), log_end_};
  log_ranges_ = needed.committed.size();
  ++counts_.log_restarts;
  log_->begin_anew(std::move(needed));
}

}  // namespace loam::commit
