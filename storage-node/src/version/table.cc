// Construction of a table, and the parts that both kinds of tables share.
#include "storage-node/src/version/table.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "storage-node/src/log/page.h"

namespace loam::storage {

Result<std::unique_ptr<Table>> Table::create(const TableOptions& options, const TableResources& resources) {
  if (options.writers == 0) return Status(StatusCode::kInvalidArgument, "a table needs at least one writing thread");
  const size_t first = options.log.first_page_bytes;
  const size_t reserve = options.log.reserve_page_bytes;
  for (const size_t size : {first, reserve}) {
    if (!std::has_single_bit(size) || size < Page::kMinPageBytes) {
      return Status(StatusCode::kInvalidArgument, "the page sizes of a table are powers of two from " +
                                                      std::to_string(Page::kMinPageBytes) + " bytes, not " +
                                                      std::to_string(size));
    }
  }
  LOAM_ASSIGN_OR_RETURN(auto index, HashIndex::create(resources.pool, {.initial_capacity = options.index_slots}));
  return std::unique_ptr<Table>(new Table(options, resources, std::move(index)));
}

Table::Table(const TableOptions& options, const TableResources& resources, std::unique_ptr<HashIndex> index)
    : options_(options),
      schemas_(options.schema == nullptr ? nullptr : std::make_unique<RowSchemas>(*options.schema)),
      resources_(resources),
      index_(std::move(index)),
      counters_(std::make_unique<Counters[]>(options.writers)),
      log_(options.id, options.log, resources.pool, options.writers) {}

Table::~Table() = default;

void Table::kill_lost_entry(Counters& counters, Entry* entry) {
  Env::probe("node.write.lost_entry_killed");
  // Before the reply: a scan would otherwise take the entry for a version once the transaction is complete (R19,
  // order by key, version and sequence).
  Chain::kill_unlinked(entry);
  Page::of(entry)->add_garbage(*entry);
  counters.discarded_entries.add(1);
}

size_t Table::max_row_bytes() const { return std::min(log_.max_row_bytes(), kMaxRowBytes); }

size_t Table::keys() const { return index_->statistics().live; }

TableCounters Table::counters() const {
  TableCounters sum;
  for (size_t w = 0; w < options_.writers; ++w) statistics::add_counters<TableNumbers>(counters_[w], sum);
  return sum;
}

}  // namespace loam::storage
