// Says what fills the memory of a storage node, for refusals and operators.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <loam/storage/statistics.h>

#include "common/base/ids.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "common/snapshot/publication.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/server/table_statistics.h"

namespace loam::storage {

/// The oldest open snapshot, as far as a storage node knows it. The commit manager knows its client.
struct OldestSnapshot {
  Version base;         ///< the id up to which the snapshot sees all versions
  uint64_t age_ns = 0;  ///< a lower bound of its age
};

/// Returns the id up to which the oldest open snapshot sees all versions. Returns nothing if no open snapshot keeps
/// versions that later ones do not see.
std::optional<Version> oldest_base(const Publication& publication);

/// Explains to the client of a refused write what fills the memory.
std::string explain_full_memory(uint64_t used_bytes, uint64_t limit_bytes, const std::vector<TableStatistics>& tables,
                                const std::optional<OldestSnapshot>& oldest);

/// Writes the MemoryReport of the registry while memory is nearly full.
///
/// Role: part of the background thread, which has the time to read the statistics of all tables. It also notes since
/// when the oldest snapshot is the oldest one, because publications have no times. Owner and thread: the background
/// thread.
class MemoryReporter {
 public:
  /// Fill of the pool (PagePool::fill()) from which on reports are written, so that the first refusal has one.
  static constexpr double kReportFill = 0.9;
  /// Time between two reports.
  static constexpr uint64_t kReportIntervalNs = 1'000'000'000;
  /// Time between two looks at the publication.
  static constexpr uint64_t kLookIntervalNs = 100'000'000;

  MemoryReporter(Registry& registry, const PagePool& pool, EpochDomain& epochs)
      : registry_(registry), pool_(pool), tables_(registry, epochs, "memory report") {}

  /// Looks at the publication and writes a report if that is due. Call it in each round, outside of guards.
  void step(EpochThread& thread);

 private:
  Registry& registry_;
  const PagePool& pool_;
  TableStatisticsReader tables_;
  uint64_t next_look_ns_ = 0;
  uint64_t next_report_ns_ = 0;
  std::optional<Version> oldest_;
  uint64_t oldest_since_ns_ = 0;
};

}  // namespace loam::storage
