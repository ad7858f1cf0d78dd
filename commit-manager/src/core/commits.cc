// How the core drives the path of a commit (commit_pipeline.h), and the replies that wait for it [R1, commit order;
// R11, commit log and restart of the commit manager; decision 0021]:
//
//   1. complete()               accepts commits from a client (client_requests.cc).
//   2. append_commits()         appends all commits of the poll round to the log, as one batch.
//   3. apply_log_progress()     makes commits visible to snapshots and answers them, when the log has accepted them.
//   4. maintain_log()           truncates commits that no storage node and no client needs any more.
//
// A commit is first visible and then answered, so a transaction that begins after the reply sees it. Visibility
// needs no flush in mode `os`; publications do.
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/env.h"

namespace loam::commit {

/// Called at the end of each poll round.
void Core::Impl::append_commits() {
  if (const auto progress = commits_.append(served_ns_)) apply_log_progress(*progress);
}

void Core::Impl::on_log_progress(const CommitLogProgress& progress) {
  if (!durable_status_.ok()) return;
  apply_log_progress(progress);
  run_deferred_work();
}

void Core::Impl::apply_log_progress(const CommitLogProgress& progress) {
  // Visible first, answered below: a client that has its reply finds the commit in every later snapshot.
  commits_.advance(progress);
  identity_.set_flushed_commits(progress.flushed);
  const uint64_t now_ns = latency::BatchTimer::late_ns();
  while (!pending_commit_replies_.empty() && pending_commit_replies_.front().position <= progress.accepted) {
    const PendingCommitReply due = std::move(pending_commit_replies_.front());
    pending_commit_replies_.pop_front();
    const auto session = sessions_.find(due.session);
    // The session has ended meanwhile. The commit stands; its client asks for the outcome under its next session
    // (R4).
    if (session == sessions_.end()) continue;
    send_reply(session->second, due.sequence, due.reply);
    if (timer_ != nullptr) {
      timer_->answered_late(latency::OperationKind::kComplete, due.session.value, due.sequence, latency::Stage::kLog,
                            due.arrival, now_ns);
    }
    Env::pause_point("manager.complete.answered");
  }
}

void Core::Impl::on_log_failed(const Status& why) {
  if (!durable_status_.ok()) return;
  durable_status_ = why;
  outbox_.log({LogLevel::kError, "commit_log.failed",
               "the commit log failed; the commit manager sends nothing more: " + why.to_string()});
}

void Core::Impl::make_publication(Publication& publication) {
  transactions_.publish(now_ns_, publication);
  acknowledged_publications_.add_sent(publication);
}

void Core::Impl::handle_publication_ack(NodeId node, const wire::PublishReply& reply) {
  if (reply.epoch != options_.epoch || !acknowledged_publications_.acknowledge(node, reply.number, node_peers_)) {
    Env::probe("manager.publication.acknowledged_too_late");
  }
}

bool Core::Impl::complete_at_all_nodes(TransactionId first, TransactionId last) const {
  for (const NodeStatus& node : catalog_.nodes()) {
    if (node.shards == 0 || node.memory_lost) continue;  // it holds no intents, so it needs no outcome
    if (!acknowledged_publications_.complete_at(node.info.id, first, last)) return false;
  }
  return true;
}

void Core::Impl::maintain_log() {
  if (restarting_) return;  // the commits of earlier epochs are needed until recovery has finished
  const bool rewritten =
      commits_.maintain(served_ns_, options_.outcome_keep_ns,
                        [this](TransactionId first, TransactionId last) { return complete_at_all_nodes(first, last); });
  if (rewritten) ++counts_.log_rewrites;
}

}  // namespace loam::commit
