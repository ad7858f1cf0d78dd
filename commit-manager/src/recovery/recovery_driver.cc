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
  to.unreadable_ids = from.unreadable_ids;
}

bool fencing(const Core& core, SessionId session) {
  for (const SessionStatus& one : core.sessions()) {
    if (one.id == session) return one.state == SessionStatus::State::kFencing;
  }
  return false;
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
    inbox_->leave({Note::Kind::kFailed, starts_, {}, false, {StatusCode::kFenced, "its time is over"}});
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
      if (!current) Env::probe("manager.recovery.told_by_replaced");
      core.recovered(note.id, note.committed, now_ns);
      if (current) worker_->acknowledged(note.id);
      break;
    case Note::Kind::kCleared:
      core.recovery_cleared(note.id);
      if (current) given_.erase(note.id);
      break;
    case Note::Kind::kScanDone:
      if (!current || !scanning_) break;
      scanning_ = false;
      if (!note.status.ok()) {
        log_error("recovery: " + note.status.to_string() +
                  "; nothing begins until they can be read, or are given up: `loam recovery accept-unreadable`");
        Env::probe("manager.recovery.scan_met_unreadable");
        scan_ns_ = now_ns + kRescanNs;
      } else if (!core.recovery_scan_due()) {
        Env::probe("manager.recovery.scan_in_vain");
      } else {
        log_info("recovery: every transaction that was open before the restart is dealt with");
        core.recovery_scan_done(now_ns);
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
      end_worker(core, now_ns);
      break;
  }
}

void RecoveryDriver::check(Core& core, uint64_t now_ns) {
  if (gave_up(core, now_ns)) return;
  const bool scan_due = core.recovery_scan_due();
  scanning_ = scanning_ && scan_due;
  std::vector<RecoveryTask> tasks;
  for (const RecoveryTask& task : core.recovery_tasks(given_.size() + kTasksAtATime)) {
    if (!given_.contains(task.id)) tasks.push_back(task);
  }
  const bool scan = scan_due && !scanning_ && now_ns >= scan_ns_;
  const FencedSessions* const fenced = sweeping_ ? nullptr : core.sweep_due();
  const bool sweep = fenced != nullptr && now_ns >= sweep_ns_;
  sweep_due_ = fenced != nullptr && !sweep;
  if (tasks.empty() && !scan && !sweep && !works()) return;
  if (worker_ == nullptr && !start_worker(core, now_ns)) return;
  refresh_catalog(core, now_ns);
  if (scan) {
    scanning_ = true;
    Env::probe("manager.recovery.scan");
    worker_->scan();
  }
  if (sweep) {
    sweeping_ = *fenced;
    worker_->sweep(fenced->set);
  }
  if (tasks.empty()) return;
  check_wanted_ = true;  // there may be more
  for (const RecoveryTask& task : tasks) given_.insert(task.id);
  worker_->add(std::move(tasks));
}

bool RecoveryDriver::start_worker(Core& core, uint64_t now_ns) {
  check_wanted_ = true;
  if (now_ns < start_ns_) return false;
  if (left_ != SessionId() && fencing(core, left_)) {
    start_ns_ = now_ns + kRestartNs;
    return false;
  }
  left_ = session_;
  start_ns_ = now_ns + kRetryStartNs;
  RecovererOptions options;
  options.session = core.open_recoverer(now_ns);
  if (options.session == SessionId()) return false;  // no number is reserved on the disk, or the manager stops
  options.manager_epoch = core.statistics().epoch;
  options.cluster = core.cluster();
  session_ = options.session;
  const uint64_t number = ++starts_;
  options.on_recovered = [inbox = inbox_, number](TransactionId id, bool committed) {
    inbox->leave({Note::Kind::kRecovered, number, id, committed, {}});
  };
  options.on_cleared = [inbox = inbox_, number](TransactionId id) {
    inbox->leave({Note::Kind::kCleared, number, id, false, {}});
  };
  options.on_scan_done = [inbox = inbox_, number](const Status& status) {
    inbox->leave({Note::Kind::kScanDone, number, {}, false, status});
  };
  options.on_swept = [inbox = inbox_, number](const Status& status) {
    inbox->leave({Note::Kind::kSwept, number, {}, false, status});
  };
  options.on_failed = [inbox = inbox_, number](const Status& status) {
    inbox->leave({Note::Kind::kFailed, number, {}, false, status});
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

void RecoveryDriver::end_worker(Core& core, uint64_t now_ns) {
  add(ended_, worker_->statistics());
  end_elsewhere(std::move(worker_));
  forget_worker(core, now_ns);
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

void RecoveryDriver::forget_worker(Core& core, uint64_t now_ns) {
  left_ = session_;
  static_cast<void>(core.open_recoverer(now_ns));  // fences it
  given_.clear();
  scanning_ = false;
  sweeping_.reset();
  watch_ns_ = 0;
  catalog_version_ = 0;
  catalog_ns_ = 0;
  start_ns_ = now_ns + kRestartNs;
  check_wanted_ = true;  // what it had is for the next one, whether or not anything else happens
}

bool RecoveryDriver::gave_up(Core& core, uint64_t now_ns) {
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
  const uint64_t tasks = seen.committed + seen.aborted + seen.cleared + seen.reverted + seen.index_changes +
                         seen.repeated + seen.unreadable;
  const bool progress = std::exchange(ended_tasks_, tasks) != tasks;
  // A pass over tables takes as long as it takes, and what cannot be read waits for an operator.
  const bool waits = scanning_ || sweeping_ || !seen.waiting.empty() || given_.size() <= seen.unreadable_ids.size();
  idle_looks_ = first || progress || waits ? 0 : idle_looks_ + 1;
  if (silent_looks_ >= kSilentLooks) {
    log_error("recovery: the recoverer's thread hangs; it is left where it is, and another one follows");
    // Ending it would mean waiting for it. Its later outcomes go to the core, and are not acknowledged.
    static std::vector<std::unique_ptr<RecoveryWorker>>& hanging = *new std::vector<std::unique_ptr<RecoveryWorker>>;
    hanging.push_back(std::move(worker_));
    forget_worker(core, now_ns);
    return true;
  }
  if (idle_looks_ >= kIdleLooks) {
    log_error("recovery: the recoverer has " + std::to_string(given_.size()) +
              " transactions and ends none, though no node is away; another one follows");
    end_worker(core, now_ns);
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

void RecoveryDriver::accept_unreadable(Core& core, TransactionId id, std::function<void(Status)> done) {
  std::vector<TransactionId> known;
  if (worker_ != nullptr) known = worker_->statistics().unreadable_ids;
  if (std::find(known.begin(), known.end(), id) == known.end()) {
    return done({StatusCode::kInvalidArgument, "transaction " + std::to_string(id.value) +
                                                   " has no undo record of which recovery knows that it cannot be "
                                                   "read; `loam status` lists those"});
  }
  log_warning("recovery: an operator has given up the undo record of transaction " + std::to_string(id.value) +
              ", which cannot be read: the transaction counts as aborted, and what it has written stays");
  core.damage_indexes([this, worker = starts_, id, done = std::move(done)](const Status& stored) {
    done(stored.ok() ? accepted(worker, id) : stored);
  });
}

Status RecoveryDriver::accepted(uint64_t worker, TransactionId id) {
  if (worker_ == nullptr || worker != starts_) {
    Env::probe("manager.recovery.replaced_while_storing");
    return {StatusCode::kUnavailable,
            "recovery began anew while this was stored; give the undo record of transaction " +
                std::to_string(id.value) + " up again"};
  }
  worker_->accept_unreadable(id);
  scan_ns_ = 0;  // a scan that this record held up is repeated at once
  check_wanted_ = true;
  return ok_status();
}

RecoveryStatistics RecoveryDriver::statistics() const {
  RecoveryStatistics all = ended_;
  all.queued = all.running = 0;
  all.waiting.clear();
  all.unreadable_ids.clear();
  if (worker_ != nullptr) add(all, worker_->statistics());
  all.starts = starts_;
  return all;
}

}  // namespace loam::commit
