#include "storage-node/src/compact/compactor.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "common/base/env.h"
#include "storage-node/src/compact/table_compactor.h"

namespace loam::storage {
namespace {

/// Tables looked at in one step when there is no job to work on.
constexpr size_t kLooksPerStep = 16;

}  // namespace

Compactor::Compactor(const CompactorOptions& options, PagePool& pool, EpochDomain& epochs)
    : options_(options), pool_(pool), epochs_(epochs) {}

Compactor::~Compactor() = default;

void Compactor::add(std::shared_ptr<Table> table) {
  const std::scoped_lock lock(mutex_);
  added_.push_back(std::move(table));
}

void Compactor::drop(TableId table) {
  const std::scoped_lock lock(mutex_);
  dropped_.push_back(table);
}

void Compactor::publish(std::shared_ptr<const Publication> publication) {
  const std::scoped_lock lock(mutex_);
  offered_ = std::move(publication);
}

CompactorStatistics Compactor::statistics() const {
  const std::scoped_lock lock(mutex_);
  return statistics_;
}

void Compactor::take_mail(ThreadContext& thread) {
  const EpochGuard guard(thread.epochs());
  const uint64_t epoch = epochs_.current();
  const std::scoped_lock lock(mutex_);
  for (std::shared_ptr<Table>& table : added_) {
    tables_.push_back(std::make_unique<TableCompactor>(std::move(table), options_, working_));
  }
  added_.clear();
  for (const TableId id : dropped_) {
    const auto found = std::ranges::find_if(tables_, [&](const auto& table) { return table->table().id() == id; });
    if (found != tables_.end()) (*found)->drop(epoch);
  }
  dropped_.clear();
  // One that waits is not replaced by a newer one: it would never become usable.
  if (waiting_ == nullptr && offered_ != nullptr) {
    waiting_ = std::exchange(offered_, nullptr);
    waiting_epoch_ = epoch;
  }
  statistics_ = working_;
}

bool Compactor::waits() const {
  return waiting_ != nullptr || std::ranges::any_of(tables_, [](const auto& table) { return table->waits(); });
}

bool Compactor::collecting() const {
  return std::ranges::any_of(
      tables_, [](const auto& table) { return !table->dropped() && table->phase() != TableCompactor::Phase::kIdle; });
}

bool Compactor::free_memory() {
  bool freed = false;
  for (const auto& table : tables_) freed |= table->free_retired(epochs_);
  if (std::erase_if(tables_, [&](const auto& table) { return table->deserted(epochs_); }) == 0) return freed;
  Env::probe("node.compact.table_freed");
  return true;
}

/// How short memory is: 0 up to the fill at which it matters, 1 where no room is left for the largest job.
double Compactor::hurry() const {
  const double fill = pool_.fill();
  if (fill <= options_.pressure_fill) return Env::buggify("node.compact.pressure") ? 1 : 0;
  const auto room = static_cast<double>(pool_.free_pages(Reserve::kWrite));
  const auto job = static_cast<double>(options_.max_sources);
  if (room <= job) return 1;
  const double full = 1 - job * (1 - fill) / room;
  return full <= fill ? 1 : (fill - options_.pressure_fill) / (full - options_.pressure_fill);
}

bool Compactor::start_job(ThreadContext& thread) {
  const auto jobs =
      std::ranges::count_if(tables_, [](const auto& table) { return table->phase() != TableCompactor::Phase::kIdle; });
  if (static_cast<size_t>(jobs) >= options_.max_jobs) return false;
  const double hurry = this->hurry();
  const EpochGuard guard(thread.epochs());
  TableCompactor* best = nullptr;
  size_t most = 0;
  for (size_t i = 0; i < tables_.size() && (hurry > 0 || (i < kLooksPerStep && best == nullptr)); ++i) {
    TableCompactor& table = *tables_[next_look_++ % tables_.size()];
    if (table.dropped() || table.phase() != TableCompactor::Phase::kIdle) continue;
    const size_t garbage = table.choose(turn_, hurry);
    if (garbage > most) {
      best = &table;
      most = garbage;
    }
  }
  if (best == nullptr) return false;
  best->begin(usable_, epochs_.current());
  return true;
}

bool Compactor::step(ThreadContext& thread, size_t budget) {
  take_mail(thread);
  epochs_.advance();
  if (waiting_ != nullptr && epochs_.passed(waiting_epoch_)) {
    usable_ = std::exchange(waiting_, nullptr);
    ++turn_;
    const EpochGuard guard(thread.epochs());
    for (const auto& table : tables_) {
      if (table->phase() != TableCompactor::Phase::kIdle) table->raise_horizon(*usable_, epochs_.current());
    }
  }
  bool busy = free_memory();
  bool worked = false;
  for (size_t i = 0; i < tables_.size() && !worked; ++i) {
    TableCompactor& table = *tables_[next_job_++ % tables_.size()];
    worked = !table.dropped() && table.step(thread, budget);
  }
  if (!worked) worked = start_job(thread);
  return busy || worked;
}

}  // namespace loam::storage
