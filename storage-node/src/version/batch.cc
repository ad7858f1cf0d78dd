#include "storage-node/src/version/batch.h"

#include <algorithm>
#include <array>

#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::storage {
namespace {

void take(PointOperation& op, const ReadOutcome& outcome) {
  op.code = outcome.code;
  op.version = outcome.version;
  op.result = outcome.row;
  op.mark = outcome.mark;
}

void take(PointOperation& op, const WriteOutcome& outcome) {
  op.code = outcome.code;
  op.version = outcome.version;
}

/// Looks at the newest row, not only at its header.
bool reads(const PointOperation& op) {
  return op.kind == PointKind::kGet || op.kind == PointKind::kPlainGet || op.projection != nullptr;
}

/// Brings the part of the newest row into the cache that does not share the header's lines: its reader copies it. 1.16
/// times the gets of 200-byte rows out of 10 million records (loam-bench index).
void prefetch_row(const Entry& entry) {
  constexpr size_t kLine = 64;
  constexpr size_t kMostBytes = 512;  // a longer copy is prefetched by the processor
  const auto* const at = reinterpret_cast<const std::byte*>(&entry);
  const size_t end = std::min<size_t>(entry.size_bytes, kMostBytes);
  for (size_t line = kLine; line < end; line += kLine) __builtin_prefetch(at + line);
}

/// Brings the group's slots and newest entries into the cache. Groups rarely span more than a few tables; each table's
/// share is fetched together.
void find_group(std::span<PointOperation> group, std::span<Cursor> cursors) {
  for (const PointOperation& op : group) op.table->index().prefetch_slot(HashIndex::hash(op.key));
  std::array<bool, kBatchGroup> done{};
  for (size_t i = 0; i < group.size(); ++i) {
    if (done[i]) continue;
    std::array<Key, kBatchGroup> keys;
    std::array<size_t, kBatchGroup> places;
    size_t count = 0;
    for (size_t j = i; j < group.size(); ++j) {
      if (group[j].table != group[i].table) continue;
      done[j] = true;
      keys[count] = group[j].key;
      places[count++] = j;
    }
    std::array<Cursor, kBatchGroup> found;
    group[i].table->index().find_batch({keys.data(), count}, {found.data(), count});
    for (size_t k = 0; k < count; ++k) {
      cursors[places[k]] = found[k];
      if (found[k].found() && reads(group[places[k]])) prefetch_row(*found[k].head);
    }
  }
}

/// A read may start from the slot as it was when the group was fetched: that is its linearization point, and what an
/// earlier operation of the group wrote over it is invisible to the snapshot, or (non-transactional) led to by the
/// replaced entry. Only an absence may have been ended by the group itself.
void run(ThreadContext& thread, PointOperation& op, const Cursor& found) {
  Table& table = *op.table;
  switch (op.kind) {
    case PointKind::kGet:
      return take(
          op, found.found() ? table.get_found(thread, found, *op.snapshot) : table.get(thread, op.key, *op.snapshot));
    case PointKind::kPlainGet:
      return take(op, found.found() ? table.plain_get_found(thread, found) : table.plain_get(thread, op.key));
    case PointKind::kInsert:
      return take(op, table.insert(thread, op.key, *op.snapshot, op.transaction, op.row));
    case PointKind::kUpdate:
      return take(op, table.update(thread, op.key, *op.snapshot, op.transaction, op.row, op.projection));
    case PointKind::kRemove:
      return take(op, table.remove(thread, op.key, *op.snapshot, op.transaction));
    case PointKind::kRevert:
      return take(op, table.revert(thread, op.key, op.transaction));
    case PointKind::kPlainPut:
      return take(op, table.plain_put(thread, op.key, op.expected, op.row, op.undo, op.projection));
    case PointKind::kPlainRemove:
      return take(op, table.plain_remove(thread, op.key, op.expected));
    case PointKind::kPlainMark:
      return take(op, table.plain_mark(thread, op.key, op.expected, op.mark));
  }
}

}  // namespace

void execute(ThreadContext& thread, std::span<PointOperation> operations) {
  LOAM_DCHECK(thread.epochs().inside(), "a batch runs inside an epoch guard");
  std::array<Cursor, kBatchGroup> cursors;
  for (size_t at = 0; at < operations.size(); at += kBatchGroup) {
    const auto group = operations.subspan(at, std::min(kBatchGroup, operations.size() - at));
    find_group(group, cursors);
    Env::pause_point("node.batch.looked_up");
    for (size_t i = 0; i < group.size(); ++i) run(thread, group[i], cursors[i]);
  }
}

}  // namespace loam::storage
