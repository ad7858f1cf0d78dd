// For tests: what a table needs around it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/log/columns.h"
#include "storage-node/src/version/manager_model.h"
#include "storage-node/src/version/table.h"
#include "storage-node/src/version/version_source.h"

namespace loam::storage {

struct FixtureOptions {
  TableKind kind = TableKind::kTransactional;
  size_t pages = 64;
  size_t page_bytes = 16384;
  size_t writers = 1;
  size_t index_slots = 64;
  std::shared_ptr<const Schema> schema = {};
};

/// A pool, epochs, a version source, and one table. The table outlives what the test makes around it; then all of them
/// are checked, whatever the test has looked at: no compaction may be left half-done.
struct TableFixture {
  explicit TableFixture(const FixtureOptions& options = {})
      : pool(PagePool::create({.limit_bytes = options.pages * options.page_bytes,
                               .page_size_bytes = options.page_bytes,
                               .huge_pages = false,
                               .prefault = false,
                               .limit_shares = {0.7, 0.8, 0.9, 1.0}})
                 .value()),
        table(
            Table::create({.id = TableId(1),
                           .kind = options.kind,
                           .writers = options.writers,
                           .index_slots = options.index_slots,
                           .log = {.first_page_bytes = Page::kMinPageBytes, .reserve_page_bytes = Page::kMinPageBytes},
                           .schema = options.schema},
                          {*pool, versions})
                .value()) {}
  ~TableFixture() {
    pool->check_invariants();
    epochs.check_invariants();
    EpochThread thread(epochs, "check");
    const EpochGuard guard(thread);
    EXPECT_EQ(table->check_invariants(), "");
  }

  std::unique_ptr<PagePool> pool;
  EpochDomain epochs;
  VersionSource versions{Incarnation(1)};
  std::shared_ptr<Table> table;
};

/// The row of an entry, wherever it lies.
inline std::string copy_of_row(const Entry& entry) {
  if (entry.kind != EntryKind::kColumns) return std::string(as_text(entry.row()));
  std::string row(row_bytes(entry), '\0');
  Columns::of(entry).gather(Columns::row_of(entry), reinterpret_cast<std::byte*>(row.data()));
  return row;
}

/// Every record that a scan of the present page list finds in the snapshot (transactional tables), or the newest
/// versions (others: null). A record found twice shows up as "twice". Caller holds a guard.
inline std::map<uint64_t, std::string> scan_all(const Table& table, const Snapshot* snapshot) {
  std::map<uint64_t, std::string> found;
  PinnedPages pages = table.pages().pin();
  for (size_t i = 0; i < pages.size(); ++i) {
    pages[i]->for_each([&](const Entry& entry) {
      const Span span = judge(entry);
      if (snapshot != nullptr ? !span.visible(*snapshot, entry.valid_from) : !span.newest()) return;
      if (entry.tombstone()) return;
      const auto [at, fresh] = found.emplace(entry.key, copy_of_row(entry));
      if (!fresh) at->second = "twice";
    });
    pages.unpin(i);
  }
  return found;
}

}  // namespace loam::storage
