// The execution of many point operations together: the requests of one network batch, across tables.
#pragma once

#include <cstdint>
#include <span>

#include "storage-node/src/version/table.h"

namespace loam::storage {

/// How execute() overlaps memory accesses. These are run-time options, so that benchmarks measure each mechanism.
struct ExecuteOptions {
  static constexpr size_t kMaxGroup = 64;

  /// Operations that pass each stage together, 1 to kMaxGroup. 1: each operation runs alone. If the data do not fit
  /// into the caches, groups of 16 are 7 times as fast as single operations. Larger groups gain little, because the
  /// line buffers of the processor are full.
  size_t group = 16;
  /// Prefetch slots, entries and rows. Without prefetches, the stages only bring the memory accesses closer together.
  bool prefetch = true;
};

/// The kind of a point operation: one function of Table.
enum class PointKind : uint8_t {
  kGet,
  kInsert,
  kUpdate,
  kRemove,
  kRevert,
  kPlainGet,
  kPlainPut,
  kPlainRemove,
};

/// One operation on one record, and its outcome. The comments say which kinds use a field.
///
/// Owner: the caller, which fills the input and keeps all referenced memory until execute() returns. Threads: one.
struct PointOperation {
  PointKind kind = PointKind::kGet;
  Reserve reserve = Reserve::kWrite;  ///< memory class of kPlainPut
  Table* table = nullptr;             ///< never null: the caller answers requests for unknown tables itself
  Key key;
  const Snapshot* snapshot = nullptr;      ///< get and transactional writes
  TransactionId transaction;               ///< transactional writes and revert
  Version expected;                        ///< plain writes
  Bytes row;                               ///< insert, update, plain put
  const Projection* projection = nullptr;  ///< update, plain put: the fields of `row`; null: it is a whole row
  uint8_t added = 0;                       ///< insert, update, plain put: number of added fields of a whole row
  const Schema* schema = nullptr;          ///< get: the schema of `result`; null: that of the stored row

  StatusCode code = StatusCode::kOk;  ///< out
  Version version;                    ///< out: ReadOutcome::version or WriteOutcome::version
  Bytes result;                       ///< out: the row read; valid until the caller's epoch guard ends
};

/// True if the operation allocates memory as an ordinary write does. Garbage collection has to free as much again, so
/// the node counts these operations for its write throttle.
inline bool appends(const PointOperation& op) {
  return op.kind == PointKind::kInsert || op.kind == PointKind::kUpdate ||
         (op.kind == PointKind::kPlainPut && op.reserve == Reserve::kWrite);
}

/// Executes the operations in order, with the same outcomes as one by one, also for operations on one key.
///
/// Each group of operations passes four stages:
/// 1. Hash the keys and prefetch their slots.
/// 2. Walk the slots and prefetch the newest entries.
/// 3. Prefetch the rows that will be read, and append the entries that will probably be written.
/// 4. Run each operation from the slot that was found, after a second look at the slot.
///
/// Allocates nothing itself; a write may open a page or grow an index. The caller holds an epoch guard of the thread.
void execute(ThreadContext& thread, std::span<PointOperation> operations, const ExecuteOptions& options = {});

}  // namespace loam::storage
