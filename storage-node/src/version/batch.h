// Many point operations at once: the requests of one network batch, across tables and clients.
#pragma once

#include <cstdint>
#include <span>

#include "storage-node/src/version/table.h"

namespace loam::storage {

/// How execute() overlaps memory accesses. Run-time options, so that each mechanism's worth can be measured.
struct ExecuteOptions {
  static constexpr size_t kMaxGroup = 64;

  /// Operations that go through the stages together, 1 to kMaxGroup; 1: one after another. Groups of 16 are worth a
  /// factor of 7 over one at a time on memory that does not fit the caches; beyond 16 the gain is small and the
  /// processor's line buffers are full.
  size_t group = 16;
  /// Fetch slots, entries and rows ahead. Without it the stages only bring the memory accesses closer together.
  bool prefetch = true;
};

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

/// One operation, and its outcome.
struct PointOperation {
  PointKind kind = PointKind::kGet;
  Reserve reserve = Reserve::kWrite;  ///< kPlainPut
  Table* table = nullptr;             ///< never null: the caller answers unknown tables itself
  Key key;
  const Snapshot* snapshot = nullptr;      ///< get and transactional writes; the caller's
  TransactionId transaction;               ///< transactional writes and revert
  Version expected;                        ///< plain writes
  Bytes row;                               ///< insert, update, plain put; the caller's
  const Projection* projection = nullptr;  ///< update, plain put: of `row`; null: it is a whole row

  StatusCode code = StatusCode::kOk;  ///< out
  Version version;                    ///< out: ReadOutcome::version or WriteOutcome::version
  Bytes result;                       ///< out: the row read; valid until the caller's epoch guard ends
};

/// Takes memory of the class of normal writes, which garbage collection has to bring again.
inline bool appends(const PointOperation& op) {
  return op.kind == PointKind::kInsert || op.kind == PointKind::kUpdate ||
         (op.kind == PointKind::kPlainPut && op.reserve == Reserve::kWrite);
}

/// Executes the operations, group by group, in stages: the keys are hashed and their slots fetched; the slots are
/// walked and the newest entries fetched; rows that will be read are fetched, and entries that will be written are
/// appended; then each operation runs, in order, from the slot that was found, which is looked at once more. Outcomes
/// are the same as one by one, also of operations on one key. Allocates nothing. Caller holds an epoch guard of the
/// thread.
void execute(ThreadContext& thread, std::span<PointOperation> operations, const ExecuteOptions& options = {});

}  // namespace loam::storage
