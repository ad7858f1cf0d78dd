// The scheduler of a recoverer's tasks, in fibers of one thread: its calls, the attempts, the poll round and the end.
// recovery_node.cc has the pauses of a storage node, and recovery_attempt.cc the undo itself.
#include "commit-manager/src/recovery/recovery_engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "commit-manager/src/recovery/recovery_attempt.h"
#include "commit-manager/src/recovery/recovery_sweep.h"
#include "common/base/env.h"
#include "common/base/exception_status.h"
#include "common/fiber/fiber_group.h"

namespace loam::commit {
namespace {

/// Returns the status of `work`; the status of an exception if it throws.
template <class Work>
Status run_catching(std::string_view what, const Work& work) {
  try {
    return work();
  } catch (...) {  // std::bad_alloc, for example
    return status_from_exception(what);
  }
}

/// Marks the tree node ids of recoverers. Clients draw ids from a counter that begins at 1 and never reaches this
/// bit. The ids of a recoverer contain its session, so no other recoverer has them.
constexpr uint64_t kOfRecoverers = uint64_t{1} << 63;
/// Bits of an id that number the tree nodes of one recoverer.
constexpr int kNodeBits = 24;

/// Counts a helper fiber while it exists.
class Helper {
 public:
  explicit Helper(size_t& helpers) : helpers_(&helpers) { ++*helpers_; }
  Helper(Helper&& other) noexcept : helpers_(std::exchange(other.helpers_, nullptr)) {}
  Helper& operator=(Helper&&) = delete;
  ~Helper() {
    if (helpers_ != nullptr) --*helpers_;
  }

 private:
  size_t* helpers_;
};

std::string name_of(SessionId session) {
  return session == SessionId() ? "all sessions of earlier epochs" : "session " + std::to_string(session.value);
}

}  // namespace

RecoveryEngine::RecoveryEngine(rpc::Worker& worker, RecovererOptions options)
    : worker_(worker), options_(std::move(options)) {
  worker_.set_hook(this);
}

RecoveryEngine::~RecoveryEngine() = default;

void RecoveryEngine::log_line(LogEvent event, const std::string& line, LogFields fields,
                              std::source_location where) const {
  if (options_.on_log_line) options_.on_log_line(event, line, fields, where);
}

// ---- calls of the owner --------------------------------------------------------------------------------------------

void RecoveryEngine::set_catalog(wire::Catalog catalog) {
  if (closed_) return;
  const bool moved = catalog_ != nullptr && catalog_->shards.version != catalog.shards.version;
  catalog_ = std::make_shared<const wire::Catalog>(std::move(catalog));
  for (const wire::NodeInfo& info : catalog_->nodes) {
    if (const auto known = nodes_.find(info.id); known != nodes_.end()) known->second->set_info(info);
  }
  if (!moved) return;
  for (const auto& [time_ns, task] : delayed_tasks_) queue_.push_back(task);
  delayed_tasks_.clear();
}

void RecoveryEngine::add(const std::vector<RecoveryTask>& tasks) {
  if (closed_) return;
  for (const RecoveryTask& task : tasks) {
    if (task.session == SessionId()) ++counted_.restarts;
    queue_.push_back({task, 0, {}});
  }
}

void RecoveryEngine::sweep(wire::FenceSet ended) {
  // The fiber keeps the catalog of its start: set_catalog() may replace it meanwhile. A table that is created later has
  // no orphans of sessions that have ended before.
  if (closed_ || catalog_ == nullptr || sweep_.open() > 0) return;
  auto work = [this, part = fiber::WaitGroupToken(sweep_), catalog = catalog_, ended = std::move(ended)]() mutable {
    ++counted_.sweeps;
    const Status swept = run_catching("the sweep of indexes",
                                      [&] { return sweep_indexes(*this, catalog, ended, counted_.swept_nodes); });
    {
      const fiber::WaitGroupToken over = std::move(part);
    }  // the next sweep may begin, even if the callback throws
    if (swept == StatusCode::kFenced) return fail(swept);
    if (!closed_) options_.on_swept(swept);
  };
  const Status spawned = worker_.scheduler().spawn(std::move(work));
  if (!spawned.ok()) options_.on_swept(spawned);
}

void RecoveryEngine::close() {
  cancel_all({StatusCode::kCancelled, "the recoverer was stopped"});
  // All requests have failed, so the fibers end soon. Their connections end after them, in poll rounds.
  attempts_.wait();
  sweep_.wait();
  while (!nodes_.empty() || !retired_.empty()) worker_.scheduler().sleep_for(1'000'000);
  worker_.set_hook(nullptr);
}

RecoveryStatistics RecoveryEngine::statistics() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

// ---- calls of attempts and sweeps ----------------------------------------------------------------------------------

RecoveryNode* RecoveryEngine::node(NodeId id) {
  if (closed_) return nullptr;
  const auto found = nodes_.find(id);
  if (found != nodes_.end()) return found->second.get();
  for (const wire::NodeInfo& info : catalog_->nodes) {
    if (info.id != id) continue;
    return nodes_.emplace(id, std::make_unique<RecoveryNode>(worker_, info, options_)).first->second.get();
  }
  return nullptr;
}

Result<rpc::Channel*> RecoveryEngine::channel(NodeId id) {
  if (RecoveryNode* const known = node(id)) return known->channel();
  if (id == NodeId()) return Status(StatusCode::kUnavailable, "no storage node owns the shard");
  return Status(StatusCode::kUnavailable, "there is no storage node " + std::to_string(id.value));
}

Status RecoveryEngine::record_status(NodeId id, const Status& status) {
  Status failure = node_failure(status);
  note_failure(id, failure);
  return failure;
}

void RecoveryEngine::note_failure(NodeId id, const Status& status) {
  RecoveryNode* const at = is_unavailable(status) ? node(id) : nullptr;
  if (at != nullptr) at->note_failure(status);
}

bool RecoveryEngine::index_ready(TableId index) const {
  const auto found = std::ranges::find(catalog_->tables, index, &wire::TableInfo::id);
  return found != catalog_->tables.end() && found->index.state() == wire::IndexState::kReady;
}

Result<bdtree::TreeNodeId> RecoveryEngine::new_tree_node() {
  if (++tree_nodes_ >> kNodeBits != 0) {
    return Status(StatusCode::kOverloaded, "the recoverer has no ids for tree nodes left");
  }
  return bdtree::TreeNodeId(kOfRecoverers | options_.session.value << kNodeBits | tree_nodes_);
}

void RecoveryEngine::parallel_for(size_t count, const std::function<void(size_t)>& work) {
  // The fibers of one thread share `next`: a fiber is suspended only inside work(). A helper that cannot be made costs
  // time only, because this fiber works through all items itself.
  size_t next = 0;
  const auto run_items = [&] {
    while (next < count) work(next++);
  };
  fiber::FiberGroup others(worker_.scheduler());
  for (size_t i = 1; i < std::min(count, kHelpersPerTask + 1) && helpers_ < kMaxHelpers; ++i) {
    if (!others.spawn([&run_items, helper = Helper(helpers_)] { run_items(); })) break;
  }
  run_items();
  others.wait();
}

// ---- attempts ------------------------------------------------------------------------------------------------------

void RecoveryEngine::start_tasks() {
  while (catalog_ != nullptr && !queue_.empty() && attempts_.open() < options_.parallel) {
    auto attempt = [this, part = fiber::WaitGroupToken(attempts_), queued = queue_.front()] { run(queued); };
    if (!worker_.scheduler().spawn(std::move(attempt)).ok()) return;  // next_deadline_ns() tries again
    queue_.pop_front();
  }
}

void RecoveryEngine::run(const QueuedTask& queued) {
  std::vector<NodeOutcome> outcomes;
  const Status status = run_catching("an attempt to recover " + name_of(queued.task.session), [&] {
    outcomes = RecoveryAttempt(*this, queued.task).run();
    return ok_status();
  });
  if (closed_) return;
  // An exception has ended the attempt. Its changes so far stay, and all nodes are tried again.
  if (!status.ok()) {
    outcomes.clear();
    for (const NodeId node : queued.task.nodes) outcomes.push_back({node, status, NodeId()});
  }
  process_outcomes(queued, outcomes);
}

/// Reports the finished nodes of a task and puts off the others. A node that has answered well is noted as
/// responsive, and so is the node that the task had waited for, if the task did not fail because of it again.
void RecoveryEngine::process_outcomes(const QueuedTask& queued, const std::vector<NodeOutcome>& outcomes) {
  RecoveryTask done = queued.task;
  done.nodes.clear();
  bool still_blocked = false;
  for (const NodeOutcome& outcome : outcomes) {
    if (outcome.status.ok()) done.nodes.push_back(outcome.node);
    still_blocked = still_blocked || (is_unavailable(outcome.status) && outcome.blocked_by == queued.waited_for);
  }
  // The failed nodes are parked before note_success(), which wakes them too if their storage node answers again.
  requeue_failed(queued, outcomes);
  std::vector<NodeId> answered = done.nodes;
  if (!still_blocked) answered.push_back(queued.waited_for);
  for (const NodeId id : answered) {
    if (RecoveryNode* const at = node(id)) at->note_success();
  }
  if (done.nodes.empty()) return;
  // The report comes last. A death before it costs a repetition, which finds nothing left to undo (R8, completion by
  // the owner, recovery after the fence).
  Env::pause_point("recoverer.reverted");
  counted_.tasks += done.nodes.size();
  options_.on_recovered(done);
}

void RecoveryEngine::requeue_failed(const QueuedTask& queued, const std::vector<NodeOutcome>& outcomes) {
  std::map<NodeId, QueuedTask> waiting;  // key: the storage node that they wait for; 0: none
  for (const NodeOutcome& outcome : outcomes) {
    if (outcome.status.ok()) continue;
    RecoveryNode* const at = is_unavailable(outcome.status) ? node(outcome.blocked_by) : nullptr;
    // A node that is responsive again meanwhile would never wake a parked task, so the task is delayed instead.
    const bool parks = at != nullptr && !at->is_responsive();
    QueuedTask& task = waiting[parks ? outcome.blocked_by : NodeId()];
    task.task.nodes.push_back(outcome.node);
    if (!parks && queued.attempts + 1 == kFailuresBeforeWarning) {
      log_line("recovery.task_delayed",
               "the transactions of " + name_of(queued.task.session) + " at storage node " +
                   std::to_string(outcome.node.value) + " are not undone yet: " + std::string(outcome.status.message()),
               {{"session", queued.task.session.value}, {"node", outcome.node.value}});
    }
  }
  for (auto& [id, task] : waiting) {
    ++counted_.repeated;
    // All nodes that wait for the same storage node stay one task, so that one probe serves all of them.
    std::vector<NodeId> nodes = std::exchange(task.task.nodes, {});
    task = {queued.task, queued.attempts + 1, id};
    task.task.nodes = std::move(nodes);
    if (id != NodeId()) {
      node(id)->parked().push_back(std::move(task));
    } else {
      delayed_tasks_.emplace(worker_.now_ns() + pause_ns(queued.attempts), std::move(task));
    }
  }
}

// ---- a poll round --------------------------------------------------------------------------------------------------

/// One poll round: fail requests past their deadline, move tasks whose pause is over to the queue, and start attempts.
/// Levels are published at the end, so that the driver's watchdog sees the round.
uint64_t RecoveryEngine::before_poll() {
  expire_nodes();
  if (!closed_) {
    wake_tasks();
    start_tasks();
  }
  update_levels();
  return worker_.scheduler().has_ready_fibers() ? worker_.now_ns() : next_deadline_ns();
}

void RecoveryEngine::expire_nodes() {
  const uint64_t now_ns = worker_.now_ns();
  Status fenced;
  for (auto& [id, node] : nodes_) {
    if (Status refused = node->expire(now_ns); !refused.ok()) fenced = std::move(refused);
  }
  for (auto& node : retired_) static_cast<void>(node->expire(now_ns));
  std::erase_if(retired_, [](const auto& node) { return node->idle(); });
  if (!fenced.ok()) fail(fenced);
}

void RecoveryEngine::wake_tasks() {
  const uint64_t now_ns = worker_.now_ns();
  for (auto& [id, node] : nodes_) {
    if (node->next_probe_ns() > now_ns) continue;
    // A node that may answer again gets one task as a probe, at the front of the queue. A responsive one gets all.
    if (!node->is_responsive()) {
      queue_.push_front(node->pop_probe());
      continue;
    }
    queue_.insert(queue_.end(), node->parked().begin(), node->parked().end());
    node->parked().clear();
  }
  while (!delayed_tasks_.empty() && delayed_tasks_.begin()->first <= now_ns) {
    queue_.push_back(std::move(delayed_tasks_.begin()->second));
    delayed_tasks_.erase(delayed_tasks_.begin());
  }
}

uint64_t RecoveryEngine::next_deadline_ns() const {
  uint64_t deadline_ns = net::kForever;
  for (const auto& [id, node] : nodes_) {
    deadline_ns = std::min({deadline_ns, node->earliest_deadline_ns(), node->next_probe_ns()});
  }
  for (const auto& node : retired_) deadline_ns = std::min(deadline_ns, node->earliest_deadline_ns());
  if (!delayed_tasks_.empty()) deadline_ns = std::min(deadline_ns, delayed_tasks_.begin()->first);
  const bool waits_for_fiber = catalog_ != nullptr && !queue_.empty() && attempts_.open() < options_.parallel;
  if (waits_for_fiber) deadline_ns = std::min(deadline_ns, worker_.now_ns() + kFirstPauseNs);
  return deadline_ns;
}

// ---- ends and levels -----------------------------------------------------------------------------------------------

void RecoveryEngine::cancel_all(const Status& status) {
  closed_ = true;
  for (auto& [id, node] : nodes_) {
    node->close(status);
    retired_.push_back(std::move(node));
  }
  nodes_.clear();  // close() has failed all requests, so the attempts end
  queue_.clear();
  delayed_tasks_.clear();
}

void RecoveryEngine::fail(const Status& status) {
  // Several fibers may learn of the fence. The owner is told once, after all requests have failed.
  if (!failed_.ok() || closed_) return;
  failed_ = status;
  cancel_all(status);
  options_.on_failed(failed_);
}

void RecoveryEngine::update_levels() {
  counted_.queued = queue_.size() + delayed_tasks_.size();
  counted_.running = closed_ ? 0 : attempts_.open();
  ++counted_.rounds;
  counted_.waiting.clear();
  for (const auto& [id, node] : nodes_) {
    if (!node->parked().empty()) counted_.waiting[id] = node->parked().size();
  }
  const std::lock_guard lock(mutex_);
  published_ = counted_;
}

}  // namespace loam::commit
