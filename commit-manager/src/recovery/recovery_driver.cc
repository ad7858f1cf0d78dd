#include "commit-manager/src/recovery/recovery_driver.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/env.h"
#include "common/base/log.h"

namespace loam::commit {
namespace {

/// Adds the counters, and takes the levels over.
void add(RecoveryStatistics& to, const RecoveryStatistics& from) {
  statistics::for_each_field(from, [&](const auto& field, uint64_t value) {
    to.*(field.member) = value + (field.kind == statistics::Kind::kCounter ? to.*(field.member) : 0);
  });
  to.waiting = from.waiting;
}

}  // namespace

RecoveryDriver::RecoveryDriver(StartRecovery start, Clock clock, std::function<void()> wake, uint64_t sweep_interval_ns)
    : start_(std::move(start)), clock_(std::move(clock)), sweep_interval_ns_(sweep_interval_ns) {
  inbox_->wake = std::move(wake);
}

RecoveryDriver::~RecoveryDriver() {
  {
    const std::scoped_lock lock(inbox_->mutex);
    inbox_->wake = nullptr;
  }
  for (auto& [number, thread] : ending_) thread.join();
}

void RecoveryDriver::step(Core& core, bool changed) {
  const uint64_t now_ns = clock_();
  if (worker_ != nullptr && Env::rare("manager.recovery.recoverer_fails")) {
    inbox_->leave({Note::Kind::kFailed, starts_, {}, {StatusCode::kFenced, "its time is over"}});
  }
  take_notes(core, now_ns);
  if (!ending_.empty()) join_ended();
  check_wanted_ = check_wanted_ || changed;
  if (now_ns < next_deadline_ns()) return;
  check_wanted_ = false;
  check(core, now_ns);
  const uint64_t took_ns = clock_() - now_ns;
  check_ns_ = now_ns + std::max(kCheckNs, took_ns * kCheckShare);
}

uint64_t RecoveryDriver::next_deadline_ns() const {
  uint64_t next = check_wanted_ ? check_ns_ : UINT64_MAX;
  // A node that comes back is no change that has to be met at once, but one that is met.
  if (works()) next = std::min(next, std::max(check_ns_, catalog_ns_));
  if (sweep_due_) next = std::min(next, std::max(check_ns_, sweep_ns_));
  return next;
}

void RecoveryDriver::Inbox::leave(Note note) {
  const std::scoped_lock lock(mutex);
  if (!wake) return;
  notes.push_back(std::move(note));
  if (notes.size() == 1) wake();
}

void RecoveryDriver::take_notes(Core& core, uint64_t now_ns) {
  std::vector<Note> notes;
  {
    const std::scoped_lock lock(inbox_->mutex);
    notes.swap(inbox_->notes);
  }
  for (const Note& note : notes) take_note(core, note, now_ns);
  if (!notes.empty()) check_wanted_ = true;
}

void RecoveryDriver::take_note(Core& core, const Note& note, uint64_t now_ns) {
  const bool current = worker_ != nullptr && note.worker == starts_;
  switch (note.kind) {
    case Note::Kind::kRecovered:
      core.recovered(note.task, now_ns);
      if (current) {
        for (const NodeId node : note.task.nodes) given_.erase({note.task.session, node});
      } else {
        Env::probe("manager.recovery.told_by_replaced");
      }
      break;
    case Note::Kind::kSwept:
      if (!current || !sweeping_) break;
      sweep_ns_ = now_ns + sweep_interval_ns_;
      if (note.status.ok()) {
        Env::probe("manager.recovery.swept");
        core.swept(*sweeping_);
      } else {
        log_info("recovery: the sweep of the indexes is repeated: " + note.status.to_string());
      }
      sweeping_.reset();
      break;
    case Note::Kind::kFailed:
      if (!current) break;
      Env::probe("manager.recovery.recoverer_failed");
      log_warning("recovery: the recoverer ends, another one follows: " + note.status.to_string());
      end_worker(now_ns);
      break;
  }
}

std::vector<RecoveryTask> RecoveryDriver::new_tasks(const Core& core) const {
  std::vector<RecoveryTask> tasks = core.recovery_tasks(given_.size() + kTasksAtATime);
  for (RecoveryTask& task : tasks) {
    std::erase_if(task.nodes, [&](NodeId node) { return given_.contains({task.session, node}); });
  }
  std::erase_if(tasks, [](const RecoveryTask& task) { return task.nodes.empty(); });
  return tasks;
}

void RecoveryDriver::check(Core& core, uint64_t now_ns) {
  if (gave_up(now_ns)) return;
  std::vector<RecoveryTask> tasks = new_tasks(core);
  const FencedSessions* const fenced = sweeping_ ? nullptr : core.sweep_due();
  std::optional<FencedSessions> sweep;
  if (fenced != nullptr && now_ns >= sweep_ns_) sweep = *fenced;
  sweep_due_ = fenced != nullptr && !sweep;
  if (tasks.empty() && !sweep && !works()) return;
  if (worker_ == nullptr && !start_worker(core, now_ns)) return;
  refresh_catalog(core, now_ns);
  if (sweep) {
    worker_->sweep(sweep->set);
    sweeping_ = std::move(sweep);
  }
  if (tasks.empty()) return;
  check_wanted_ = true;  // there may be more
  for (const RecoveryTask& task : tasks) {
    for (const NodeId node : task.nodes) given_.emplace(task.session, node);
  }
  worker_->add(std::move(tasks));
}

bool RecoveryDriver::start_worker(Core& core, uint64_t now_ns) {
  check_wanted_ = true;
  if (now_ns < start_ns_) return false;
  start_ns_ = now_ns + kRetryStartNs;
  RecovererOptions options;
  options.session = core.open_recoverer(now_ns);
  if (options.session == SessionId()) return false;  // no number is reserved on the disk, or the manager stops
  options.manager_epoch = core.statistics().epoch;
  options.cluster = core.cluster();
  const uint64_t number = ++starts_;
  options.on_recovered = [inbox = inbox_, number](const RecoveryTask& task) {
    inbox->leave({Note::Kind::kRecovered, number, task, {}});
  };
  options.on_swept = [inbox = inbox_, number](const Status& status) {
    inbox->leave({Note::Kind::kSwept, number, {}, status});
  };
  options.on_failed = [inbox = inbox_, number](const Status& status) {
    inbox->leave({Note::Kind::kFailed, number, {}, status});
  };
  options.on_note = [](std::string_view line) { log_info("recovery: " + std::string(line)); };
  auto started = start_(std::move(options));
  if (!started.ok()) {
    log_error("recovery: the recoverer cannot start, and is tried again: " + started.status().to_string());
    return false;
  }
  worker_ = std::move(started).value();
  return true;
}

void RecoveryDriver::end_worker(uint64_t now_ns) {
  add(ended_, worker_->statistics());
  end_elsewhere(std::move(worker_));
  forget_worker(now_ns);
}

/// Its end waits for its thread, which may be waiting itself. Its late reports reach the core, or are dropped.
void RecoveryDriver::end_elsewhere(std::unique_ptr<RecoveryWorker> worker) {
  const auto last = std::make_shared<std::unique_ptr<RecoveryWorker>>(std::move(worker));
  ending_.emplace(starts_, Thread("loam-ending", [last, inbox = inbox_, number = starts_] {
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
  for (const uint64_t number : ended) ending_.extract(number).mapped().join();
}

void RecoveryDriver::forget_worker(uint64_t now_ns) {
  given_.clear();
  sweeping_.reset();
  watch_ns_ = 0;
  catalog_version_ = 0;
  catalog_ns_ = 0;
  start_ns_ = now_ns + kRestartNs;
  check_wanted_ = true;  // what it had is for the next one, whether or not anything else happens
}

bool RecoveryDriver::gave_up(uint64_t now_ns) {
  if (worker_ == nullptr || !works()) {
    watch_ns_ = 0;
    return false;
  }
  if (now_ns < watch_ns_) return false;
  const bool first = std::exchange(watch_ns_, now_ns + kWatchNs) == 0;
  const RecoveryStatistics seen = worker_->statistics();
  worker_->add({});  // a thread that works makes a round of it
  const bool turned = std::exchange(rounds_, seen.rounds) != seen.rounds;
  silent_looks_ = first || turned ? 0 : silent_looks_ + 1;
  const uint64_t done = seen.tasks + seen.intents + seen.reverted + seen.index_changes + seen.repeated;
  const bool progress = std::exchange(progress_, done) != done;
  const bool waits = sweeping_ || !seen.waiting.empty();  // a pass over tables takes as long as it takes
  idle_looks_ = first || progress || waits ? 0 : idle_looks_ + 1;
  if (silent_looks_ >= kSilentLooks) {
    log_error("recovery: the recoverer's thread hangs; it is left where it is, and another one follows");
    // Ending it would mean waiting for it. Its later reports go to the core.
    static std::vector<std::unique_ptr<RecoveryWorker>>& hanging = *new std::vector<std::unique_ptr<RecoveryWorker>>;
    hanging.push_back(std::move(worker_));
    forget_worker(now_ns);
    return true;
  }
  if (idle_looks_ >= kIdleLooks) {
    log_error("recovery: the recoverer has " + std::to_string(given_.size()) +
              " tasks and ends none, though no node is away; another one follows");
    end_worker(now_ns);
    return true;
  }
  return false;
}

void RecoveryDriver::refresh_catalog(const Core& core, uint64_t now_ns) {
  // The first task after a quiet time finds the catalog of this moment.
  if (now_ns < catalog_ns_ && works()) return;
  catalog_ns_ = now_ns + kCatalogNs;
  wire::Catalog catalog = core.catalog_for_recovery();
  if (catalog.version == catalog_version_) return;
  catalog_version_ = catalog.version;
  worker_->set_catalog(std::move(catalog));
}

RecoveryStatistics RecoveryDriver::statistics() const {
  RecoveryStatistics all = ended_;
  all.queued = all.running = 0;
  all.waiting.clear();
  if (worker_ != nullptr) add(all, worker_->statistics());
  all.starts = starts_;
  return all;
}

}  // namespace loam::commit
