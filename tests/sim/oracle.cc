// The oracle passes each report on to the model that judges it. The models lock the mutex themselves. This file locks
// it only for the losses and the verdict, which all models share.
#include "tests/sim/oracle.h"

#include <mutex>
#include <utility>

namespace loam::sim {

Oracle::Oracle(std::function<uint64_t()> now_ns)
    : verdict_(std::move(now_ns)),
      indexes_(verdict_, losses_),
      transactions_(verdict_, losses_, indexes_),
      plain_(verdict_, losses_),
      tables_(verdict_),
      added_fields_(verdict_),
      counters_(verdict_, losses_),
      sessions_(verdict_),
      trees_(verdict_, losses_) {}

bool Oracle::failed() const {
  const std::lock_guard lock(verdict_.mutex());
  return verdict_.failed();
}

const std::string& Oracle::message() const { return verdict_.message(); }
std::string_view Oracle::invariant() const { return verdict_.invariant(); }

void Oracle::violate(std::string_view invariant, std::string_view text) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.violate(invariant, text);
}

LogicalTime Oracle::now() {
  const std::lock_guard lock(verdict_.mutex());
  return verdict_.next();
}

void Oracle::client_crashed(uint32_t process) {
  ++crashes_;
  transactions_.client_crashed(process);
  plain_.client_crashed(process);
}

size_t Oracle::node_lost(Losses::StoredOnNode owned) {
  const std::lock_guard lock(verdict_.mutex());
  return losses_.add(std::move(owned), verdict_.next());
}

size_t Oracle::node_lost(NodeId node, wire::ShardMap map) {
  return node_lost([node, map = std::move(map)](TableId table, Key key) { return map.owner(table, key) == node; });
}

void Oracle::loss_accepted(size_t loss) {
  const std::lock_guard lock(verdict_.mutex());
  losses_.accept(loss, verdict_.next());
}

void Oracle::loss_acknowledged(size_t loss) {
  const std::lock_guard lock(verdict_.mutex());
  losses_.acknowledge(loss, verdict_.next());
}

bool Oracle::lost_since(RecordId place, LogicalTime from) {
  const std::lock_guard lock(verdict_.mutex());
  return losses_.lost_between(place, from, verdict_.next());
}

void Oracle::node_checked(std::string_view node, std::string_view wrong, uint64_t intents) {
  const std::lock_guard lock(verdict_.mutex());
  if (!wrong.empty()) verdict_.violate("structure", std::string(node) + ": " + std::string(wrong));
  if (intents == 0) return;
  verdict_.violate("intent-left", std::string(node) + " holds " + std::to_string(intents) + " intents");
}

void Oracle::final_check() { transactions_.final_check(); }

OracleStatistics Oracle::statistics() const {
  const std::lock_guard lock(verdict_.mutex());
  OracleStatistics statistics;
  statistics.transactions = transactions_.begun_count();
  statistics.commits = transactions_.commits();
  statistics.aborts = transactions_.aborts();
  statistics.unknown = transactions_.unknown();
  statistics.resolved = transactions_.resolved();
  statistics.reads = transactions_.reads();
  statistics.scans = transactions_.scans();
  statistics.plain_writes = plain_.writes();
  statistics.counter_numbers = counters_.numbers();
  statistics.tree_changes = trees_.changes();
  statistics.tables_created = tables_.tables_created();
  statistics.crashes = crashes_;
  // Aborts and unknown outcomes are no progress: a cluster in which every transaction aborts hangs.
  statistics.progress =
      statistics.commits + statistics.reads + statistics.scans + statistics.plain_writes + statistics.counter_numbers;
  return statistics;
}

}  // namespace loam::sim
