#include "commit-manager/src/recovery/recovery_driver.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/log.h"

namespace loam::commit {
namespace {

client::RecoveryTask::Kind kind_of(RecoveryTask::Kind kind) {
  switch (kind) {
    case RecoveryTask::Kind::kOpen:
      return client::RecoveryTask::Kind::kOpen;
    case RecoveryTask::Kind::kUncleared:
      return client::RecoveryTask::Kind::kUncleared;
  }
  return client::RecoveryTask::Kind::kOpen;
}

/// Adds the counters, and takes the levels over.
void add(RecoveryStatistics& to, const client::RecovererStatistics& from) {
  to.committed += from.committed;
  to.aborted += from.aborted;
  to.cleared += from.cleared;
  to.reverted += from.reverted;
  to.repeated += from.repeated;
  to.unreadable += from.unreadable;
  to.scans += from.scans;
  to.queued = from.queued;
  to.running = from.running;
  to.waiting = from.waiting;
}

}  // namespace

RecoveryDriver::RecoveryDriver(StartRecovery start, Clock clock, std::function<void()> wake)
    : start_(std::move(start)), clock_(std::move(clock)), wake_(std::move(wake)) {}

RecoveryDriver::~RecoveryDriver() = default;

void RecoveryDriver::step(Core& core, bool changed) {
  const uint64_t now_ns = clock_();
  take_notes(core, now_ns);
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
  if (!given_.empty() || scanning_) next = std::min(next, std::max(check_ns_, catalog_ns_));
  return next;
}

void RecoveryDriver::leave(Note note) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = notes_.empty();
    notes_.push_back(std::move(note));
  }
  if (first) wake_();
}

void RecoveryDriver::take_notes(Core& core, uint64_t now_ns) {
  std::vector<Note> notes;
  {
    const std::lock_guard lock(mutex_);
    notes.swap(notes_);
  }
  for (const Note& note : notes) take_note(core, note, now_ns);
  if (!notes.empty()) check_wanted_ = true;
}

void RecoveryDriver::take_note(Core& core, const Note& note, uint64_t now_ns) {
  const bool current = worker_ != nullptr && note.worker == starts_;
  switch (note.kind) {
    case Note::Kind::kRecovered:
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
        log_error("recovery: " + note.status.to_string() + "; nothing begins until they can be read");
        scan_ns_ = now_ns + kRescanNs;
      } else if (core.recovery_scan_due()) {
        log_info("recovery: every transaction that was open before the restart is dealt with");
        core.recovery_scan_done(now_ns);
      }
      break;
    case Note::Kind::kFailed:
      if (!current) break;
      log_warning("recovery: the recoverer ends, another one follows: " + note.status.to_string());
      end_worker(now_ns);
      break;
  }
}

void RecoveryDriver::check(Core& core, uint64_t now_ns) {
  const bool scan_due = core.recovery_scan_due();
  scanning_ = scanning_ && scan_due;
  std::vector<client::RecoveryTask> tasks;
  for (const RecoveryTask& task : core.recovery_tasks(given_.size() + kTasksAtATime)) {
    if (!given_.contains(task.id)) tasks.push_back({task.id, task.session, kind_of(task.kind)});
  }
  const bool scan = scan_due && !scanning_ && now_ns >= scan_ns_;
  if (tasks.empty() && !scan && given_.empty() && !scanning_) return;
  if (worker_ == nullptr && !start_worker(core, now_ns)) return;
  refresh_catalog(core, now_ns);
  if (scan) {
    scanning_ = true;
    worker_->scan();
  }
  if (tasks.empty()) return;
  check_wanted_ = true;  // there may be more
  for (const client::RecoveryTask& task : tasks) given_.insert(task.id);
  worker_->add(std::move(tasks));
}

bool RecoveryDriver::start_worker(Core& core, uint64_t now_ns) {
  check_wanted_ = true;
  if (now_ns < start_ns_) return false;
  start_ns_ = now_ns + kRetryStartNs;
  client::RecovererOptions options;
  options.session = core.open_recoverer(now_ns);
  if (options.session == SessionId()) return false;  // the state could not be stored: the manager stops
  options.manager_epoch = core.statistics().epoch;
  const uint64_t number = ++starts_;
  options.on_recovered = [this, number](TransactionId id, bool committed) {
    leave({Note::Kind::kRecovered, number, id, committed, {}});
  };
  options.on_cleared = [this, number](TransactionId id) { leave({Note::Kind::kCleared, number, id, false, {}}); };
  options.on_scan_done = [this, number](const Status& status) {
    leave({Note::Kind::kScanDone, number, {}, false, status});
  };
  options.on_failed = [this, number](const Status& status) { leave({Note::Kind::kFailed, number, {}, false, status}); };
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
  worker_.reset();
  given_.clear();
  scanning_ = false;
  catalog_version_ = 0;
  catalog_ns_ = 0;
  start_ns_ = now_ns + kRestartNs;
}

void RecoveryDriver::refresh_catalog(const Core& core, uint64_t now_ns) {
  // The first task after a quiet time finds the catalog of this moment.
  if (now_ns < catalog_ns_ && !given_.empty()) return;
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
