// The exchange between core and recoverer on the server thread: reports, tasks and sweeps, and the replacement of a
// recoverer that fails or hangs. The core decides which tasks are due (src/core/recovery.cc).
#include "commit-manager/src/recovery/recovery_driver.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/env.h"
#include "common/base/log.h"

namespace loam::commit {
namespace {

/// Adds the counters of `from`, and replaces the levels by those of `from`.
void add(RecoveryStatistics& to, const RecoveryStatistics& from) {
  statistics::for_each_field(from, [&](const auto& field, uint64_t value) {
    to.*(field.member) = value + (field.kind == statistics::Kind::kCounter ? to.*(field.member) : 0);
  });
  to.waiting = from.waiting;
}

}  // namespace

RecoveryDriver::RecoveryDriver(RecoveryWorkerFactory start, Clock clock, std::function<void()> wake,
                               uint64_t sweep_interval_ns)
    : start_(std::move(start)), clock_(std::move(clock)), sweep_interval_ns_(sweep_interval_ns) {
  inbox_->wake = std::move(wake);
}

RecoveryDriver::~RecoveryDriver() {
  // A recoverer that hangs may report later. Without `wake` the inbox drops the report, and no code of the driver runs.
  {
    const std::scoped_lock lock(inbox_->mutex);
    inbox_->wake = nullptr;
  }
  for (auto& [number, thread] : destroying_threads_) thread.join();
}

void RecoveryDriver::step(Core& core, bool changed) {
  const uint64_t now_ns = clock_();
  if (worker_ != nullptr && Env::buggify("manager.recovery.recoverer_fails")) {
    inbox_->post({WorkerReport::Kind::kFailed, worker_number_, {}, {StatusCode::kFenced, "its time is over"}});
  }
  // Step 1: reports. They complete transactions, so they do not wait for the next check.
  process_reports(core, now_ns);
  if (!destroying_threads_.empty()) join_ended();
  // Step 2: at intervals, new tasks. The interval grows with the duration of the check, which bounds its share of the
  // server thread.
  check_wanted_ = check_wanted_ || changed;
  if (now_ns < next_deadline_ns()) return;
  check_wanted_ = false;
  check(core, now_ns);
  const uint64_t took_ns = clock_() - now_ns;
  check_ns_ = now_ns + std::max(kCheckNs, took_ns * kCheckShare);
}

uint64_t RecoveryDriver::next_deadline_ns() const {
  uint64_t next = check_wanted_ ? check_ns_ : UINT64_MAX;
  // While there is work, the catalog is refreshed at intervals: no event tells that a storage node has returned.
  if (has_work()) next = std::min(next, std::max(check_ns_, catalog_ns_));
  if (sweep_due_) next = std::min(next, std::max(check_ns_, sweep_ns_));
  return next;
}

void RecoveryDriver::Inbox::post(WorkerReport report) {
  const std::scoped_lock lock(mutex);
  if (!wake) return;
  // One call of `wake` is enough for all reports that the server takes together.
  reports.push_back(std::move(report));
  if (reports.size() == 1) wake();
}

void RecoveryDriver::process_reports(Core& core, uint64_t now_ns) {
  std::vector<WorkerReport> reports;
  {
    const std::scoped_lock lock(inbox_->mutex);
    reports.swap(inbox_->reports);
  }
  for (const WorkerReport& report : reports) process_report(core, report, now_ns);
  if (!reports.empty()) check_wanted_ = true;
}

void RecoveryDriver::process_report(Core& core, const WorkerReport& report, uint64_t now_ns) {
  const bool current = worker_ != nullptr && report.worker == worker_number_;
  switch (report.kind) {
    // The report of a replaced recoverer counts too, because no write of the session can appear at the node afterwards
    // (invariant 2).
    case WorkerReport::Kind::kRecovered:
      core.complete_recovery(report.task, now_ns);
      if (current) {
        for (const NodeId node : report.task.nodes) dispatched_.erase({report.task.session, node});
      } else {
        Env::probe("manager.recovery.told_by_replaced");
      }
      break;
    // The sweep of a replaced recoverer does not count, because another one may be under way for other sessions. A
    // sweep may be repeated.
    case WorkerReport::Kind::kSwept:
      if (!current || !sweeping_) break;
      sweep_ns_ = now_ns + sweep_interval_ns_;
      if (report.status.ok()) {
        Env::probe("manager.recovery.swept");
        core.complete_sweep(*sweeping_);
      } else {
        log_info("recovery.sweep_failed",
                 "recovery: the sweep of the indexes failed and is repeated: " + report.status.to_string());
      }
      sweeping_.reset();
      break;
    case WorkerReport::Kind::kFailed:
      if (!current) break;
      Env::probe("manager.recovery.recoverer_failed");
      log_warning("recovery.recoverer_failed",
                  "recovery: the recoverer failed and is replaced: " + report.status.to_string());
      end_worker(now_ns);
      break;
  }
}

std::vector<RecoveryTask> RecoveryDriver::new_tasks(const Core& core) const {
  // The core returns a task until it is reported. So the limit leaves room for all dispatched ones, and the nodes that
  // the recoverer has already are taken out.
  std::vector<RecoveryTask> tasks = core.recovery_tasks(dispatched_.size() + kMaxTaskBatch);
  for (RecoveryTask& task : tasks) {
    std::erase_if(task.nodes, [&](NodeId node) { return dispatched_.contains({task.session, node}); });
  }
  std::erase_if(tasks, [](const RecoveryTask& task) { return task.nodes.empty(); });
  return tasks;
}

void RecoveryDriver::check(Core& core, uint64_t now_ns) {
  // Step 1: a recoverer that is stuck gets no more work. The next check starts another one.
  if (replace_if_stuck(now_ns)) return;
  // Step 2: collect the work. Without any, no recoverer is started: it costs a session and a thread.
  std::vector<RecoveryTask> tasks = new_tasks(core);
  const FencedSessions* const fenced = sweeping_ ? nullptr : core.sweep_due();
  std::optional<FencedSessions> sweep;
  if (fenced != nullptr && now_ns >= sweep_ns_) sweep = *fenced;
  sweep_due_ = fenced != nullptr && !sweep;
  if (tasks.empty() && !sweep && !has_work()) return;
  // Step 3: pass the work on, behind a catalog that knows its nodes and indexes.
  if (worker_ == nullptr && !start_worker(core, now_ns)) return;
  refresh_catalog(core, now_ns);
  if (sweep) {
    worker_->sweep(sweep->set);
    sweeping_ = std::move(sweep);
  }
  if (tasks.empty()) return;
  check_wanted_ = true;  // there may be more
  for (const RecoveryTask& task : tasks) {
    for (const NodeId node : task.nodes) dispatched_.emplace(task.session, node);
  }
  worker_->add(std::move(tasks));
}

bool RecoveryDriver::start_worker(Core& core, uint64_t now_ns) {
  check_wanted_ = true;  // the work is still there, and the next check tries again
  if (now_ns < start_ns_) return false;
  start_ns_ = now_ns + kRetryStartNs;
  RecovererOptions options;
  options.session = core.open_recoverer_session(now_ns);
  if (options.session == SessionId())
    return false;  // the stored bound of session numbers is reached, or the disk failed
  options.manager_epoch = core.statistics().epoch;
  options.cluster = core.cluster();
  // The callbacks own a reference to the inbox, because a recoverer that hangs may outlive the driver.
  const uint64_t number = ++worker_number_;
  options.on_recovered = [inbox = inbox_, number](const RecoveryTask& task) {
    inbox->post({WorkerReport::Kind::kRecovered, number, task, {}});
  };
  options.on_swept = [inbox = inbox_, number](const Status& status) {
    inbox->post({WorkerReport::Kind::kSwept, number, {}, status});
  };
  options.on_failed = [inbox = inbox_, number](const Status& status) {
    inbox->post({WorkerReport::Kind::kFailed, number, {}, status});
  };
  options.on_log_line = [](LogEvent event, std::string_view line, LogFields fields, std::source_location where) {
    log_info(event, "recovery: " + std::string(line), fields, where);
  };
  auto started = start_(std::move(options));
  if (!started.ok()) {
    log_error("recovery.recoverer_not_started",
              "recovery: the recoverer cannot start; the next try follows: " + started.status().to_string());
    return false;
  }
  worker_ = std::move(started).value();
  return true;
}

void RecoveryDriver::end_worker(uint64_t now_ns) {
  add(past_statistics_, worker_->statistics());
  destroy_in_background(std::move(worker_));
  reset_worker_state(now_ns);
}

/// Destroys a recoverer on a thread of its own: the destructor waits for the recoverer's thread, which may wait for a
/// node. Late reports reach the core, or are dropped with the inbox.
void RecoveryDriver::destroy_in_background(std::unique_ptr<RecoveryWorker> worker) {
  const auto last = std::make_shared<std::unique_ptr<RecoveryWorker>>(std::move(worker));
  destroying_threads_.emplace(worker_number_, Thread("loam-ending", [last, inbox = inbox_, number = worker_number_] {
                                last->reset();
                                const std::scoped_lock lock(inbox->mutex);
                                inbox->ended.push_back(number);
                              }));
}

void RecoveryDriver::join_ended() {
  std::vector<uint64_t> ended;
  {
    const std::scoped_lock lock(inbox_->mutex);
    ended.swap(inbox_->ended);
  }
  for (const uint64_t number : ended) destroying_threads_.extract(number).mapped().join();
}

void RecoveryDriver::reset_worker_state(uint64_t now_ns) {
  dispatched_.clear();
  sweeping_.reset();
  next_watchdog_ns_ = 0;
  catalog_version_ = 0;
  catalog_ns_ = 0;
  start_ns_ = now_ns + kRestartNs;
  check_wanted_ = true;  // the next recoverer gets the unfinished work even if nothing else happens
}

bool RecoveryDriver::replace_if_stuck(uint64_t now_ns) {
  if (worker_ == nullptr || !has_work()) {
    next_watchdog_ns_ = 0;
    return false;
  }
  // Step 1: compare the statistics with those of the last check. An idle thread makes no poll rounds, so the empty list
  // of tasks causes one.
  if (now_ns < next_watchdog_ns_) return false;
  const bool first = std::exchange(next_watchdog_ns_, now_ns + kWatchdogIntervalNs) == 0;
  const RecoveryStatistics seen = worker_->statistics();
  worker_->add({});  // causes a poll round if the thread does not hang
  const bool turned = std::exchange(rounds_, seen.rounds) != seen.rounds;
  stalled_checks_ = first || turned ? 0 : stalled_checks_ + 1;
  const uint64_t done = seen.tasks + seen.intents + seen.reverted + seen.index_changes + seen.repeated;
  const bool progress = std::exchange(progress_, done) != done;
  const bool waits = sweeping_ || !seen.waiting.empty();  // a sweep reports no progress and may take long
  idle_checks_ = first || progress || waits ? 0 : idle_checks_ + 1;
  // Step 2: replace a recoverer without poll rounds, or with poll rounds and without progress. Both recoverers may work
  // at the same time (invariant 3).
  if (stalled_checks_ >= kMaxStalledChecks) {
    log_error("recovery.recoverer_hangs",
              "recovery: the recoverer's thread hangs; it is abandoned, and another recoverer starts");
    // The destructor would wait for the thread, so the object is leaked. Its late reports still go to the core.
    static std::vector<std::unique_ptr<RecoveryWorker>>& hanging = *new std::vector<std::unique_ptr<RecoveryWorker>>;
    hanging.push_back(std::move(worker_));
    reset_worker_state(now_ns);
    return true;
  }
  if (idle_checks_ >= kMaxIdleChecks) {
    log_error("recovery.no_progress",
              "recovery: the recoverer has " + std::to_string(dispatched_.size()) +
                  " tasks and finishes none, although no storage node is away; another recoverer starts",
              {{"tasks", dispatched_.size()}});
    end_worker(now_ns);
    return true;
  }
  return false;
}

void RecoveryDriver::refresh_catalog(const Core& core, uint64_t now_ns) {
  // The first task after an idle time always gets the present catalog.
  if (now_ns < catalog_ns_ && has_work()) return;
  catalog_ns_ = now_ns + kCatalogNs;
  wire::Catalog catalog = core.catalog_for_recovery();
  if (catalog.version == catalog_version_) return;
  catalog_version_ = catalog.version;
  worker_->set_catalog(std::move(catalog));
}

RecoveryStatistics RecoveryDriver::statistics() const {
  RecoveryStatistics all = past_statistics_;
  // Counters go on over all recoverers. Levels are those of the running one.
  all.queued = all.running = 0;
  all.waiting.clear();
  if (worker_ != nullptr) add(all, worker_->statistics());
  all.starts = worker_number_;
  return all;
}

}  // namespace loam::commit
