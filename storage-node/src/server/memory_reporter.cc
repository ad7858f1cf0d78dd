#include "storage-node/src/server/memory_reporter.h"

#include <algorithm>
#include <utility>

#include "common/base/env.h"

namespace loam::storage {
namespace {

std::string mebibytes(uint64_t bytes) { return std::to_string((bytes + (1 << 19)) >> 20) + " MiB"; }

uint64_t memory_of(const TableStatistics& table) { return table.log_bytes + table.index_bytes; }

}  // namespace

std::optional<Version> oldest_base(const Publication& publication) {
  std::optional<Version> oldest;
  if (publication.young_open) oldest = publication.floor;
  for (const OldSnapshot& old : publication.old) {
    oldest = oldest ? std::min(*oldest, old.snapshot.base()) : old.snapshot.base();
  }
  return oldest;
}

std::string explain_full_memory(uint64_t used_bytes, uint64_t limit_bytes, const std::vector<TableStatistics>& tables,
                                const std::optional<OldestSnapshot>& oldest) {
  std::string text = "memory is full (" + mebibytes(used_bytes) + " of " + mebibytes(limit_bytes) +
                     "; the rest is reserved for removes, aborts and garbage collection)";
  const auto largest = std::ranges::max_element(tables, {}, memory_of);
  if (largest != tables.end()) {
    text += ": " + std::string(largest->index_of.empty() ? "table " : "index ") + largest->name + " holds " +
            mebibytes(memory_of(*largest)) + ", of which " + mebibytes(largest->garbage_bytes) +
            " are old or removed versions";
  }
  if (oldest) {
    text += "; the oldest open snapshot sees transactions up to " + std::to_string(oldest->base.value) +
            ", is at least " + std::to_string(oldest->age_ns / 1'000'000'000) +
            " s old, and keeps the versions that it sees: `loam transactions` names its client";
  }
  return text + "; remove records, drop tables or end old snapshots";
}

void MemoryReporter::step(EpochThread& thread) {
  const uint64_t now_ns = Env::now_ns();
  if (now_ns < next_look_ns_) return;
  next_look_ns_ = now_ns + kLookIntervalNs;
  {
    const EpochGuard guard(thread);
    const std::optional<Version> oldest = oldest_base(registry_.publication());
    if (std::exchange(oldest_, oldest) != oldest) oldest_since_ns_ = now_ns;
  }
  if (now_ns < next_report_ns_ || pool_.fill() < kReportFill) return;
  next_report_ns_ = now_ns + kReportIntervalNs;
  std::optional<OldestSnapshot> oldest;
  if (oldest_) oldest = OldestSnapshot{*oldest_, now_ns - oldest_since_ns_};
  registry_.memory_report().set(thread,
                                explain_full_memory(pool_.used_bytes(), pool_.limit_bytes(), tables_.read(), oldest));
}

}  // namespace loam::storage
