// The stages of a batch; batch.h describes them.
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

void set_outcome(PointOperation& op, const ReadOutcome& outcome) {
  op.code = outcome.code;
  op.version = outcome.version;
  op.result = outcome.row;
}

void set_outcome(PointOperation& op, const WriteOutcome& outcome) {
  op.code = outcome.code;
  op.version = outcome.version;
}

bool reads(PointKind kind) { return kind == PointKind::kGet || kind == PointKind::kPlainGet; }
/// True if the operation reads the newest row, not only its header.
bool reads_row(const PointOperation& op) { return reads(op.kind) || op.projection != nullptr; }
/// True for the operations that append_speculative() accepts.
bool writes_version(PointKind kind) {
  return kind == PointKind::kInsert || kind == PointKind::kUpdate || kind == PointKind::kRemove;
}

/// The request of an operation for which writes_version() holds.
VersionWrite version_write(const PointOperation& op) {
  switch (op.kind) {
    case PointKind::kInsert:
      return VersionWrite::insert_of(*op.snapshot, op.transaction, op.row, op.added);
    case PointKind::kUpdate:
      return VersionWrite::update_of(*op.snapshot, op.transaction, {op.row, op.projection, op.added});
    default:
      return VersionWrite::remove_of(*op.snapshot, op.transaction);
  }
}

/// The state of one operation between the stages.
struct StagedOperation {
  Cursor cursor;
  Entry* speculative;  // the entry that append_speculative() returned, or null
};

/// Memory for a group. It is not initialised, because most groups are not full.
class Group {
 public:
  Group() {}  // NOLINT(modernize-use-equals-default): the union has no default constructor
  StagedOperation& operator[](size_t i) { return staged[i]; }

 private:
  static_assert(std::is_trivially_destructible_v<StagedOperation>);
  union {
    StagedOperation staged[ExecuteOptions::kMaxGroup];
  };
};

/// Stages 1 to 3. Afterwards each cursor holds the place of its key, the memory behind it is prefetched, and the
/// entries of writes are appended.
void look_up(ThreadContext& thread, std::span<PointOperation> group, Group& staged, bool prefetch) {
  uint64_t hashes[ExecuteOptions::kMaxGroup];
  for (size_t i = 0; i < group.size(); ++i) {
    hashes[i] = HashIndex::hash(group[i].key);
    if (prefetch) group[i].table->index().prefetch_slot(hashes[i], !reads(group[i].kind));
  }
  for (size_t i = 0; i < group.size(); ++i) {
    // Constructed in place: a copy of a cursor that was just written would wait for its stores.
    new (&staged[i])
        StagedOperation{group[i].table->index().find_candidate(group[i].key, hashes[i], prefetch), nullptr};
  }
  // By now the slots of the first operations have arrived in the cache.
  for (size_t i = 0; i < group.size(); ++i) {
    const PointOperation& op = group[i];
    Cursor& cursor = staged[i].cursor;
    op.table->index().confirm(cursor);
    if (prefetch && reads_row(op) && cursor.found()) prefetch_row(*cursor.head);
    if (writes_version(op.kind)) {
      staged[i].speculative = op.table->append_speculative(thread, cursor, version_write(op));
      // Tests pause here: the append has sealed the page of the previous entry, which is not linked yet (R17, freeze).
      const bool follows = i > 0 && group[i - 1].table == op.table && staged[i - 1].speculative != nullptr;
      const Entry* const entry = staged[i].speculative;
      if (follows && entry != nullptr && entry == Page::of(entry)->begin()) Env::pause_point("node.batch.opened_page");
    }
  }
}

/// Stage 4: runs one operation from the slot that stage 3 has found.
void run(ThreadContext& thread, PointOperation& op, StagedOperation& staged) {
  Table& table = *op.table;
  Cursor& found = staged.cursor;
  table.index().confirm(found);  // an earlier operation of the group may have changed the slot
  switch (op.kind) {
    case PointKind::kGet:
      return set_outcome(op, table.get_at(thread, found, *op.snapshot, op.schema));
    case PointKind::kPlainGet:
      return set_outcome(op, table.plain_get_at(thread, found, op.schema));
    case PointKind::kInsert:
    case PointKind::kUpdate:
    case PointKind::kRemove:
      return set_outcome(op, table.write_at(thread, found, version_write(op), staged.speculative));
    case PointKind::kRevert:
      return set_outcome(op, table.revert_at(thread, found, op.transaction));
    case PointKind::kPlainPut:
      return set_outcome(op,
                         table.plain_put_at(thread, found, op.expected, {op.row, op.projection, op.added}, op.reserve));
    case PointKind::kPlainRemove:
      return set_outcome(op, table.plain_remove_at(thread, found, op.expected));
  }
}

}  // namespace

void execute(ThreadContext& thread, std::span<PointOperation> operations, const ExecuteOptions& options) {
  LOAM_DCHECK(thread.epochs().inside(), "a batch runs inside an epoch guard");
  LOAM_DCHECK(options.group >= 1 && options.group <= ExecuteOptions::kMaxGroup,
              "the node options bound the size of a group");
  Group staged;
  // Operations run in their order. Stages 1 to 3 of a group change no record, so stage 4 decides each operation as if
  // it ran alone.
  for (size_t at = 0; at < operations.size(); at += options.group) {
    const auto group = operations.subspan(at, std::min(options.group, operations.size() - at));
    look_up(thread, group, staged, options.prefetch);
    Env::pause_point("node.batch.looked_up");
    for (size_t i = 0; i < group.size(); ++i) run(thread, group[i], staged[i]);
  }
}

}  // namespace loam::storage
