// The loop of a scan thread: commands of other threads, then one step of its scheduler under an epoch guard.
#include "storage-node/src/server/scan_worker.h"

#include <chrono>
#include <string>
#include <utility>

#include "common/base/env.h"

namespace loam::storage {
namespace {

/// Bytes of entries that are walked under one epoch guard: about 20 µs of memory traffic, so that a step delays
/// reclamation and commands little.
constexpr size_t kBytesPerStep = size_t{256} << 10;
/// Time between two checks of the limits of queries while all of them wait for credits.
constexpr auto kBlockedPause = std::chrono::milliseconds(10);
/// Above this fill of the pool a query that is blocked for longer than kBlockedUnderPressureNs ends and unpins its
/// pages (R25, limit for stalled queries).
constexpr double kPressureFill = 0.9;
constexpr uint64_t kBlockedUnderPressureNs = 1'000'000'000;

}  // namespace

ScanWorker::ScanWorker(Registry& registry, EpochDomain& epochs, PagePool& pool, const ScanScheduler::Options& options)
    : registry_(registry), epochs_(epochs), pool_(pool), scheduler_(options) {}

ScanWorker::~ScanWorker() { stop(); }

void ScanWorker::run(size_t number, int nice) {
  thread_ = Thread("loam-scan-" + std::to_string(number), [this, number] { loop(number); }, nice);
}

void ScanWorker::stop() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

void ScanWorker::post(Command command) {
  {
    const std::scoped_lock lock(mutex_);
    commands_.push_back(std::move(command));
  }
  posted_.notify_one();
}

void ScanWorker::loop(size_t number) {
  EpochThread thread(epochs_, "scan " + std::to_string(number));
  bool busy = false;
  while (dequeue_commands(!busy)) {
    const uint64_t now_ns = Env::now_ns();
    for (const Command& command : running_) command(scheduler_, now_ns);
    running_.clear();
    busy = step(thread, now_ns);
    const ScanPassStatistics statistics = scheduler_.statistics();
    pages_.store(statistics.pages, std::memory_order_relaxed);      // relaxed: statistics
    entries_.store(statistics.entries, std::memory_order_relaxed);  // relaxed: statistics
  }
  const uint64_t now_ns = Env::now_ns();
  // Queries that are left end like queries of dropped tables: they unpin their pages.
  for (const TableId table : tables_) scheduler_.drop_table(table, now_ns);
}

bool ScanWorker::step(EpochThread& thread, uint64_t now_ns) {
  const EpochGuard guard(thread);
  if (scheduler_.queries() == 0) {
    tables_.clear();
    return false;
  }
  // End the queries of dropped tables (R30, table creation and drop).
  const RegistryView& view = registry_.view();
  for (auto table = tables_.begin(); table != tables_.end();) {
    if (view.find(*table) == nullptr) {
      scheduler_.drop_table(*table, now_ns);
      table = tables_.erase(table);
    } else {
      ++table;
    }
  }
  // A storage node without a lease may count as fenced, so its scans end too (R9, leases of storage nodes).
  if (!registry_.lease_holds(now_ns)) {
    Env::probe("node.scan.without_lease");
    scheduler_.cancel_all({StatusCode::kUnavailable, "scan: the storage node's lease has run out; try again"}, now_ns);
  }
  if (pool_.fill() > kPressureFill) scheduler_.cancel_blocked(kBlockedUnderPressureNs, now_ns);
  return scheduler_.step(now_ns, registry_.publication(), kBytesPerStep);
}

bool ScanWorker::dequeue_commands(bool wait) {
  std::unique_lock lock(mutex_);
  const auto due = [this] { return stopping_ || !commands_.empty(); };
  if (wait && scheduler_.queries() > 0) {
    posted_.wait_for(lock, kBlockedPause, due);
  } else if (wait) {
    posted_.wait(lock, due);
  }
  running_.swap(commands_);
  return !stopping_;
}

}  // namespace loam::storage
