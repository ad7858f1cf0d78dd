// For tests: a table with the objects that it needs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/log/columns.h"
#include "storage-node/src/version/table.h"
#include "storage-node/src/version/version_source.h"
#include "storage-node/testing/manager_model.h"

namespace loam::storage {

/// The sizes of a TableFixture.
struct FixtureOptions {
  TableKind kind = TableKind::kTransactional;
  size_t pages = 64;
  size_t page_bytes = 16384;
  size_t writers = 1;
  size_t index_slots = 64;
  std::shared_ptr<const Schema> schema = {};
};

/// A pool, an epoch domain, a version source, and one table.
///
/// The destructor checks the invariants of all of them. So a test must not leave a compaction half done. Owner: the
/// test, which ends its threads and its compactor first.
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

/// A copy of the row of an entry of any kind.
inline std::string copy_of_row(const Entry& entry) {
  if (entry.kind != EntryKind::kColumns) return std::string(as_text(entry.row()));
  std::string row(row_bytes(entry), '\0');
  Columns::of(entry).gather(Columns::row_of(entry), reinterpret_cast<std::byte*>(row.data()));
  return row;
}

/// Scans the present page list. Returns the rows by key.
///
/// With a snapshot (transactional tables), the result has the records that the snapshot sees. With null
/// (non-transactional tables), it has the newest versions. A record that the scan finds twice has the row "twice". The
/// caller holds a guard.
inline std::map<uint64_t, std::string> scan_all(const Table& table, const Snapshot* snapshot) {
  std::map<uint64_t, std::string> found;
  PinnedPages pages = table.pages().pin();
  for (size_t i = 0; i < pages.size(); ++i) {
    pages[i]->for_each([&](const Entry& entry) {
      const Lifetime lifetime = lifetime_of(entry);
      if (snapshot != nullptr ? !lifetime.visible(*snapshot, entry.valid_from) : !lifetime.newest()) return;
      if (entry.tombstone()) return;
      const auto [at, fresh] = found.emplace(entry.key, copy_of_row(entry));
      if (!fresh) at->second = "twice";
    });
    pages.unpin(i);
  }
  return found;
}

}  // namespace loam::storage
