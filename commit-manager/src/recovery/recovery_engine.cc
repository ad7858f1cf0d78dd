#include "commit-manager/src/recovery/recovery_engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "commit-manager/src/recovery/recovery_machine.h"
#include "commit-manager/src/recovery/recovery_sweep.h"
#include "common/base/unfinished.h"
#include "common/fiber/fiber_group.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using End = RecoveryMachine::End;

/// The node did not answer, or says that it cannot serve at present: no other task need ask it for a while.
bool silent(const Status& status) { return status == StatusCode::kUnavailable || status == StatusCode::kTimeout; }

/// The status of `work`, or kUnknownOutcome for an exception.
template <class Work>
Status finished(std::string_view what, const Work& work) {
  try {
    return work();
  } catch (...) {  // memory ran out
    return unfinished(what);
  }
}

/// Numbers of tree nodes: clients' are drawn from a counter that begins at 1 and never gets so far; a recoverer's have
/// its session in them, which no other session has.
constexpr uint64_t kOfRecoverers = uint64_t{1} << 63;
constexpr int kNodeBits = 24;

/// Every undo record, with the session that wrote it.
RecoveryScan::Request all_undo_records(std::vector<RecoveryTask>& found) {
  Query query;
  query.with_key = true;
  query.select = {wire::TransactionTableFields::kSession};
  const auto take = [&found](const ChunkView& view) {
    for (size_t row = 0; row < view.rows(); ++row) {
      const TransactionId id(view.get<uint64_t>(0, row));
      const SessionId session(static_cast<uint64_t>(view.get<int64_t>(1, row)));
      found.push_back({id, session, RecoveryTask::Kind::kFound});
    }
  };
  return {wire::kTransactionTableId, wire::transaction_table_schema(), query, "the transaction table", take};
}

}  // namespace

RecoveryEngine::RecoveryEngine(rpc::Worker& worker, RecovererOptions options)
    : worker_(worker), options_(std::move(options)) {
  worker_.set_hook(this);
}

RecoveryEngine::~RecoveryEngine() = default;

void RecoveryEngine::note(const std::string& line) const {
  if (options_.on_note) options_.on_note(line);
}

// ---- what the owner asks for ---------------------------------------------------------------------------------------

void RecoveryEngine::set_catalog(wire::Catalog catalog) {
  if (closed_) return;
  const bool moved = catalog_ != nullptr && catalog_->shards.version != catalog.shards.version;
  catalog_ = std::make_shared<const wire::Catalog>(std::move(catalog));
  for (auto at = nodes_.begin(); at != nodes_.end();) {
    RecoveryNode& node = *at->second;
    const auto info = std::find_if(catalog_->nodes.begin(), catalog_->nodes.end(),
                                   [&](const wire::NodeInfo& candidate) { return candidate.id == at->first; });
    const bool known = info != catalog_->nodes.end();
    if (known && info->incarnation == node.info().incarnation && info->address == node.info().address) {
      if (info->state != node.info().state) {
        node.set_state(info->state);
        node.resume();
      }
      ++at;
      continue;
    }
    queue_.insert(queue_.end(), node.parked().begin(), node.parked().end());
    node.close({StatusCode::kUnavailable, node.name() + " was started anew"});
    retired_.push_back(std::move(at->second));
    at = nodes_.erase(at);
  }
  if (!moved) return;
  for (const auto& [time_ns, task] : later_) queue_.push_back(task);
  later_.clear();
}

void RecoveryEngine::add(const std::vector<RecoveryTask>& tasks) {
  if (closed_) return;
  for (const RecoveryTask& task : tasks) {
    if (known_.insert(task.id).second) queue_.push_back({task, 0});
  }
}

void RecoveryEngine::acknowledged(TransactionId id) {
  const auto found = runs_.find(id);
  if (!closed_ && found != runs_.end()) found->second->acknowledged();
}

void RecoveryEngine::scan() {
  if (closed_) return;
  scan_wanted_ = true;
  scan_complete_ = false;
  scan_.reset();
  scan_at_ns_ = 0;
  scan_failures_ = 0;
  scan_left_.clear();
  scan_result_ = ok_status();
}

void RecoveryEngine::accept_unreadable(TransactionId id) {
  const auto found = unreadable_.find(id);
  if (closed_ || found == unreadable_.end()) return;
  accepted_.insert(id);
  queue_.push_back({found->second, 0});
  unreadable_.erase(found);
}

void RecoveryEngine::close() {
  drop_all({StatusCode::kCancelled, "the recoverer was stopped"});
  index_work_.wait();
  while (!nodes_.empty() || !retired_.empty()) worker_.scheduler().sleep_for(1'000'000);
  worker_.set_hook(nullptr);
}

RecoveryStatistics RecoveryEngine::statistics() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

// ---- what runs and scans say ---------------------------------------------------------------------------------------

Status RecoveryEngine::undo_indexes(const IndexUndo& undo) {
  const std::vector<wire::IndexChange> changes(undo.changes.begin(), undo.changes.end());
  return worker_.scheduler().spawn([this, part = fiber::WaitPart(index_work_), id = undo.transaction, changes] {
    const Status undone = finished("the undo of index changes", [&] { return undo_index_changes(*this, id, changes); });
    const auto found = runs_.find(id);
    if (found != runs_.end()) found->second->indexes_undone(undone);
  });
}

void RecoveryEngine::sweep(wire::FenceSet ended) {
  if (closed_ || catalog_ == nullptr || sweeping_) return;
  auto work = [this, part = fiber::WaitPart(index_work_), catalog = catalog_, ended = std::move(ended)] {
    ++counted_.sweeps;
    const Status swept =
        finished("the sweep of indexes", [&] { return sweep_indexes(*this, catalog, ended, counted_.swept_nodes); });
    sweeping_ = false;
    if (!closed_) options_.on_swept(swept);
  };
  const Status spawned = worker_.scheduler().spawn(std::move(work));
  sweeping_ = spawned.ok();  // the fiber runs later
  if (!spawned.ok()) options_.on_swept(spawned);
}

Result<bdtree::TreeNodeId> RecoveryEngine::new_tree_node() {
  if (++tree_nodes_ >> kNodeBits != 0) {
    return Status(StatusCode::kOverloaded, "a recoverer has made more nodes of indexes than it has numbers for");
  }
  return bdtree::TreeNodeId(kOfRecoverers | options_.session.value << kNodeBits | tree_nodes_);
}

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
  if (id == NodeId()) return Status(StatusCode::kUnavailable, "no storage node owns it");
  return Status(StatusCode::kUnavailable, "no storage node has number " + std::to_string(id.value));
}

void RecoveryEngine::run_reports(const RecoveryRun& run) {
  if (closed_) return;
  const RecoveryMachine& machine = run.machine();
  ++(machine.committed() ? counted_.committed : counted_.aborted);
  counted_.reverted += machine.reverted();
  options_.on_recovered(machine.id(), machine.committed());
}

void RecoveryEngine::run_blocked(const RecoveryRun& run) {
  if (closed_) return;
  const RecoveryMachine& machine = run.machine();
  ++counted_.repeated;
  RecoveryNode* const at = node(machine.blocked_by());
  if (at != nullptr && silent(machine.status())) at->note_failure(machine.status());
}

// ---- a round -------------------------------------------------------------------------------------------------------

uint64_t RecoveryEngine::before_poll() {
  expire_nodes();
  if (!closed_) {
    take_ended();
    continue_scan();
    wake_tasks();
    start_runs();
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

void RecoveryEngine::take_ended() {
  while (!ended_.empty()) {
    const std::vector<TransactionId> ended = std::exchange(ended_, {});
    for (const TransactionId id : ended) {
      const auto found = runs_.find(id);
      if (found == runs_.end()) continue;
      const std::unique_ptr<RecoveryRun> run = std::move(found->second);
      runs_.erase(found);
      take_ended(*run);
      if (closed_) return;
    }
  }
}

void RecoveryEngine::take_ended(const RecoveryRun& run) {
  const RecoveryMachine& machine = run.machine();
  const TransactionId id = machine.id();
  switch (machine.end()) {
    case End::kNone:
      return;
    case End::kDone:
      ++counted_.cleared;
      options_.on_cleared(id);
      known_.erase(id);
      accepted_.erase(id);
      scan_left_.erase(id);
      return;
    case End::kPostponed: {
      RecoveryNode* const at = node(machine.blocked_by());
      if (at != nullptr && silent(machine.status())) {
        at->parked().push_back({machine.rest(), run.attempts()});
      } else {
        const uint64_t time_ns = worker_.now_ns() + pause_ns(run.attempts());
        later_.emplace(time_ns, QueuedTask{machine.rest(), run.attempts() + 1});
      }
      return;
    }
    case End::kUnreadable:
      ++counted_.unreadable;
      note(std::string(machine.status().message()));
      unreadable_.emplace(id, machine.rest());
      if (scan_left_.erase(id) != 0 && scan_result_.ok()) scan_result_ = machine.status();
      return;
    case End::kFenced:
      return fail(machine.status());
  }
}

void RecoveryEngine::wake_tasks() {
  const uint64_t now_ns = worker_.now_ns();
  for (auto& [id, node] : nodes_) {
    if (node->next_probe_ns() > now_ns) continue;
    if (!node->answers()) {
      queue_.push_front(node->take_probe());
      continue;
    }
    queue_.insert(queue_.end(), node->parked().begin(), node->parked().end());
    node->parked().clear();
  }
  while (!later_.empty() && later_.begin()->first <= now_ns) {
    queue_.push_back(later_.begin()->second);
    later_.erase(later_.begin());
  }
}

void RecoveryEngine::start_runs() {
  while (catalog_ != nullptr && !queue_.empty() && runs_.size() < options_.parallel) {
    const QueuedTask task = queue_.front();
    queue_.pop_front();
    auto& run = runs_[task.task.id];
    run = std::make_unique<RecoveryRun>(*this, task, catalog_, accepted_.contains(task.task.id));
    run->start();
    take_ended();  // it may have found its node paused
    if (closed_) return;
  }
}

// ---- the scan ------------------------------------------------------------------------------------------------------

void RecoveryEngine::continue_scan() {
  if (!scan_wanted_ || catalog_ == nullptr) return;
  const uint64_t now_ns = worker_.now_ns();
  if (!scan_complete_ && scan_ == nullptr && now_ns >= scan_at_ns_) {
    ++counted_.scans;
    scanned_.clear();
    scan_ = std::make_unique<RecoveryScan>(*this, catalog_, all_undo_records(scanned_));
    scan_->start();
  }
  if (scan_ != nullptr && scan_->done()) take_scanned();
  if (!scan_complete_ || !scan_left_.empty()) return;
  scan_wanted_ = false;
  options_.on_scan_done(scan_result_);
}

void RecoveryEngine::take_scanned() {
  const std::unique_ptr<RecoveryScan> scanned = std::move(scan_);
  if (!scanned->status().ok()) {
    if (scanned->status() == StatusCode::kFenced) return fail(scanned->status());
    if (++scan_failures_ == kFailuresToNote) note(std::string(scanned->status().message()));
    scan_at_ns_ = worker_.now_ns() + pause_ns(scan_failures_);
    return;
  }
  scan_complete_ = true;
  add(scanned_);
  for (const RecoveryTask& task : scanned_) {
    if (!unreadable_.contains(task.id)) {
      scan_left_.insert(task.id);
    } else if (scan_result_.ok()) {
      scan_result_ = {StatusCode::kMalformed,
                      "the undo record of transaction " + std::to_string(task.id.value) + " cannot be read"};
    }
  }
}

// ---- ends and levels -----------------------------------------------------------------------------------------------

void RecoveryEngine::drop_all(const Status& status) {
  closed_ = true;
  scan_.reset();
  scan_wanted_ = false;
  for (auto& [id, node] : nodes_) {
    node->close(status);
    retired_.push_back(std::move(node));
  }
  nodes_.clear();  // runs_ live until their requests have failed
  ended_.clear();
  queue_.clear();
  later_.clear();
}

void RecoveryEngine::fail(const Status& status) {
  if (!failed_.ok() || closed_) return;
  failed_ = status;
  drop_all(status);
  options_.on_failed(failed_);
}

uint64_t RecoveryEngine::next_deadline_ns() const {
  uint64_t deadline_ns = net::kForever;
  for (const auto& [id, node] : nodes_) {
    deadline_ns = std::min({deadline_ns, node->earliest_deadline_ns(), node->next_probe_ns()});
  }
  for (const auto& node : retired_) deadline_ns = std::min(deadline_ns, node->earliest_deadline_ns());
  if (!later_.empty()) deadline_ns = std::min(deadline_ns, later_.begin()->first);
  if (scan_wanted_ && !scan_complete_ && scan_ == nullptr) deadline_ns = std::min(deadline_ns, scan_at_ns_);
  return ended_.empty() ? deadline_ns : 0;
}

void RecoveryEngine::update_levels() {
  counted_.queued = queue_.size() + later_.size();
  counted_.running = closed_ ? 0 : runs_.size();
  ++counted_.rounds;
  counted_.unreadable_ids.clear();
  for (const auto& [id, task] : unreadable_) {
    if (counted_.unreadable_ids.size() < kMaxUnreadableListed) counted_.unreadable_ids.push_back(id);
  }
  counted_.waiting.clear();
  for (const auto& [id, node] : nodes_) {
    if (!node->parked().empty()) counted_.waiting[id] = node->parked().size();
  }
  const std::lock_guard lock(mutex_);
  published_ = counted_;
}

}  // namespace loam::commit
