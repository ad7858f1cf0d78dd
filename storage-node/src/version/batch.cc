#include "storage-node/src/version/batch.h"

#include <algorithm>
#include <new>
#include <type_traits>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "storage-node/src/log/page.h"
#include "storage-node/src/log/row_prefetch.h"

namespace loam::storage {
namespace {

void take(PointOperation& op, const ReadOutcome& outcome) {
  op.code = outcome.code;
  op.version = outcome.version;
  op.result = outcome.row;
}

void take(PointOperation& op, const WriteOutcome& outcome) {
  op.code = outcome.code;
  op.version = outcome.version;
}

bool reads(PointKind kind) { return kind == PointKind::kGet || kind == PointKind::kPlainGet; }
/// Looks at the newest row, not only at its header.
bool reads_row(const PointOperation& op) { return reads(op.kind) || op.projection != nullptr; }
bool writes_version(PointKind kind) {
  return kind == PointKind::kInsert || kind == PointKind::kUpdate || kind == PointKind::kRemove;
}

/// Of an operation for which writes_version() holds.
VersionWrite version_write(const PointOperation& op) {
  switch (op.kind) {
    case PointKind::kInsert:
      return VersionWrite::insert_of(*op.snapshot, op.transaction, op.row);
    case PointKind::kUpdate:
      return VersionWrite::update_of(*op.snapshot, op.transaction, {op.row, op.projection});
    default:
      return VersionWrite::remove_of(*op.snapshot, op.transaction);
  }
}

/// What the stages hand on for one operation.
struct Staged {
  Cursor cursor;
  Entry* prepared;  // appended for a write; else null
};

/// Room for a group, not initialised: a group is seldom full.
class Group {
 public:
  Group() {}  // NOLINT(modernize-use-equals-default): the union has no default constructor
  Staged& operator[](size_t i) { return staged[i]; }

 private:
  static_assert(std::is_trivially_destructible_v<Staged>);
  union {
    Staged staged[ExecuteOptions::kMaxGroup];
  };
};

/// The first stages: each cursor leads to where its key is or would be, everything it leads to is in the cache or on
/// its way, and entries of writes are appended.
void look_up(ThreadContext& thread, std::span<PointOperation> group, Group& staged, bool prefetch) {
  uint64_t hashes[ExecuteOptions::kMaxGroup];
  for (size_t i = 0; i < group.size(); ++i) {
    hashes[i] = HashIndex::hash(group[i].key);
    if (prefetch) group[i].table->index().prefetch_slot(hashes[i], !reads(group[i].kind));
  }
  for (size_t i = 0; i < group.size(); ++i) {
    // Made in place: a copy right after it was written would wait for the stores.
    new (&staged[i]) Staged{group[i].table->index().look(group[i].key, hashes[i], prefetch), nullptr};
  }
  for (size_t i = 0; i < group.size(); ++i) {
    const PointOperation& op = group[i];
    Cursor& cursor = staged[i].cursor;
    op.table->index().confirm(cursor);
    if (prefetch && reads_row(op) && cursor.found()) prefetch_row(*cursor.head);
    if (writes_version(op.kind)) {
      staged[i].prepared = op.table->prepare(thread, cursor, version_write(op));
      // The page of the entry before has been sealed, and that entry is not linked yet (R17).
      const bool follows = i > 0 && group[i - 1].table == op.table && staged[i - 1].prepared != nullptr;
      const Entry* const entry = staged[i].prepared;
      if (follows && entry != nullptr && entry == Page::of(entry)->begin()) Env::pause_point("node.batch.opened_page");
    }
  }
}

void run(ThreadContext& thread, PointOperation& op, Staged& staged) {
  Table& table = *op.table;
  Cursor& found = staged.cursor;
  table.index().confirm(found);  // an earlier operation of the group may have changed it
  switch (op.kind) {
    case PointKind::kGet:
      return take(op, table.get_found(thread, found, *op.snapshot));
    case PointKind::kPlainGet:
      return take(op, table.plain_get_found(thread, found));
    case PointKind::kInsert:
    case PointKind::kUpdate:
    case PointKind::kRemove:
      return take(op, table.write_found(thread, found, version_write(op), staged.prepared));
    case PointKind::kRevert:
      return take(op, table.revert_found(thread, found, op.transaction));
    case PointKind::kPlainPut:
      return take(op, table.plain_put_found(thread, found, op.expected, {op.row, op.projection}, op.reserve));
    case PointKind::kPlainRemove:
      return take(op, table.plain_remove_found(thread, found, op.expected));
  }
}

}  // namespace

void execute(ThreadContext& thread, std::span<PointOperation> operations, const ExecuteOptions& options) {
  LOAM_DCHECK(thread.epochs().inside(), "a batch runs inside an epoch guard");
  LOAM_DCHECK(options.group >= 1 && options.group <= ExecuteOptions::kMaxGroup, "the size of a group is checked early");
  Group staged;
  for (size_t at = 0; at < operations.size(); at += options.group) {
    const auto group = operations.subspan(at, std::min(options.group, operations.size() - at));
    look_up(thread, group, staged, options.prefetch);
    Env::pause_point("node.batch.looked_up");
    for (size_t i = 0; i < group.size(); ++i) run(thread, group[i], staged[i]);
  }
}

}  // namespace loam::storage
