#include "storage-node/src/admin/node_metrics.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <tuple>
#include <type_traits>

#include "common/admin/latency.h"
#include "common/admin/metrics.h"

namespace loam::storage {
namespace {

using latency::OperationKind;
using latency::Stage;

constexpr std::array kKindsInMetrics = {OperationKind::kRead,      OperationKind::kWrite,      OperationKind::kRevert,
                                        OperationKind::kPlainRead, OperationKind::kPlainWrite, OperationKind::kScan};
constexpr std::array kStagesInMetrics = {Stage::kQueue, Stage::kExecution, Stage::kAnswer};

/// The sums of the numbers of tables.
TableStatistics sum_of(std::span<const TableStatistics> tables) {
  TableStatistics sum;
  std::apply(
      [&](const auto&... field) {
        const auto add = [&](auto member) {
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(sum.*member)>, uint64_t>) {
            for (const TableStatistics& table : tables) sum.*member += table.*member;
          }
        };
        (add(field.member), ...);
      },
      TableStatistics::fields());
  return sum;
}

}  // namespace

std::string metrics_of(NodeStatistics statistics, const latency::Latencies& latencies) {
  Metrics metrics;
  metrics.add("loam_node", statistics);
  add_latencies(metrics, "loam_node", latencies, kKindsInMetrics, kStagesInMetrics);
  const auto memory = [](const TableStatistics& table) { return table.log_bytes + table.index_bytes; };
  const std::span<TableStatistics> tables = statistics.tables;
  const size_t shown = std::min(tables.size(), kTablesInMetrics);
  std::ranges::partial_sort(tables, tables.begin() + static_cast<ptrdiff_t>(shown), std::ranges::greater(), memory);
  for (const TableStatistics& table : tables.first(shown)) {
    metrics.add("loam_table", table, {{"table", table.name}}, {"table", "name", "index_of"});
  }
  if (shown < tables.size()) {
    metrics.add_without_counters("loam_table", sum_of(tables.subspan(shown)), {{"table", kOtherTables}},
                                 {"table", "name", "index_of"});
  }
  return metrics.text();
}

}  // namespace loam::storage
