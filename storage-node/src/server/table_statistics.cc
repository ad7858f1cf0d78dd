// The walk over the pages of all tables, in steps of a bounded number of pages.
#include "storage-node/src/server/table_statistics.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "storage-node/src/index/hash_index.h"
#include "storage-node/src/log/page.h"

namespace loam::storage {

std::vector<TableStatistics> TableStatisticsReader::read() {
  const std::shared_ptr<const TableList> tables = registry_.tables();
  std::unordered_map<uint64_t, const std::string*> names;
  for (const auto& table : *tables) names.emplace(table->info.id.value, &table->info.name);
  std::vector<TableStatistics> all;
  all.reserve(tables->size());
  const std::scoped_lock lock(mutex_);
  for (const auto& table : *tables) {
    all.push_back(read(*table));
    if (!table->info.index) continue;
    const auto of = names.find(table->info.index.table.value);
    if (of != names.end()) all.back().index_of = *of->second;
  }
  return all;
}

TableStatistics TableStatisticsReader::read(const ServedTable& served) {
  Table& table = *served.table;
  TableStatistics s;
  static_cast<TableCounters&>(s) = table.counters();
  s.table = served.info.id.value;
  s.name = served.info.name;
  add_pages(table, s);
  return s;
}

void TableStatisticsReader::add_pages(Table& table, TableStatistics& statistics) {
  size_t next = 0;
  for (bool more = true; more;) {
    const EpochGuard guard(thread_);
    if (next == 0) {
      statistics.keys = table.keys();
      statistics.index_bytes = table.index().statistics().bytes;
    }
    // The list may have changed since the last guard. Pages that moved towards its begin are missed.
    const std::span<Page* const> pages = table.pages().pages();
    const size_t end = std::min(pages.size(), next + pages_per_guard_);
    for (; next < end; ++next) {
      const Page& page = *pages[next];
      ++statistics.pages;
      statistics.column_pages += page.has_columns() ? 1 : 0;
      statistics.log_bytes += page.used_bytes();
      statistics.garbage_bytes += page.garbage_bytes();
    }
    more = next < pages.size();
  }
}

}  // namespace loam::storage
