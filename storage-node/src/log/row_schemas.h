// The schemas of a table's rows by their numbers of added fields, and rows in the schema that a reader needs.
// [Decision 0027]
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/base/env.h"
#include "common/schema/row.h"
#include "common/schema/schema.h"
#include "storage-node/src/log/columns.h"
#include "storage-node/src/log/entry.h"
#include "storage-node/src/log/thread_context.h"

namespace loam::storage {

/// The schema for each number of added fields that rows of a table may have: of(n) is the schema of rows with n of
/// them.
///
/// Owner: the table. Schemas live as long as this object, because column pages refer to them. Threads: the control
/// thread calls extend(). Any thread calls the other functions. A thread that has an entry with n added fields may call
/// of(n): the write of the entry came after extend(), and the thread has the entry from the page's fill mark, the index
/// or a link.
class RowSchemas {
 public:
  explicit RowSchemas(const Schema& newest) { extend(newest); }
  RowSchemas(const RowSchemas&) = delete;
  RowSchemas& operator=(const RowSchemas&) = delete;

  /// Takes over the schema of the table if it has more added fields than the present one.
  void extend(const Schema& newest) {
    const List* const present = list_.load(std::memory_order_relaxed);  // relaxed: this thread wrote it
    if (present != nullptr && newest.added() < present->size()) return;
    List next = present == nullptr ? List() : *present;
    for (size_t added = next.size(); added <= newest.added(); ++added) {
      next.push_back(std::make_shared<const Schema>(newest.with_added(static_cast<uint8_t>(added))));
    }
    lists_.push_back(std::make_unique<const List>(std::move(next)));
    // Release: pairs with the acquire in list().
    list_.store(lists_.back().get(), std::memory_order_release);
  }

  /// The schema of rows with this number of added fields.
  const Schema& of(uint8_t added) const {
    LOAM_DCHECK(added < list().size(), "a row has added fields that the table does not have");
    return *list()[added];
  }
  /// The schema with all added fields.
  const Schema& newest() const { return *list().back(); }

 private:
  using List = std::vector<std::shared_ptr<const Schema>>;  // by number of added fields

  const List& list() const { return *list_.load(std::memory_order_acquire); }  // pairs with extend()

  Env::Atomic<const List*> list_{nullptr};
  std::vector<std::unique_ptr<const List>> lists_;  // all lists, for their readers; the control thread only
};

/// The number of added fields of an entry's row.
inline uint8_t added_fields(const Entry& entry) {
  return entry.kind == EntryKind::kColumns ? Columns::of(entry).schema().added() : entry.added_fields;
}

/// The schema of an entry's row.
inline const Schema& schema_of(const Entry& entry, const RowSchemas& schemas) {
  return entry.kind == EntryKind::kColumns ? Columns::of(entry).schema() : schemas.of(entry.added_fields);
}

/// Copies the row of an entry in the schema `to`, as row_of() below, to memory of the thread.
Bytes copy_of_row(const Entry& entry, ThreadContext& thread, const RowSchemas* schemas, const Schema* to);

/// The row of an entry of any kind in the schema `to` of the table; null: as it is stored. Valid until the thread's
/// epoch guard ends. Copies a row that lies in columns, or that has another number of added fields.
inline Bytes row_of(const Entry& entry, ThreadContext& thread, const RowSchemas* schemas, const Schema* to) {
  const bool copied = entry.kind == EntryKind::kColumns || (to != nullptr && entry.added_fields != to->added());
  return copied ? copy_of_row(entry, thread, schemas, to) : entry.row();
}

}  // namespace loam::storage
