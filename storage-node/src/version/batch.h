// Many point operations at once: the requests of one network batch, across tables and clients.
#pragma once

#include <cstdint>
#include <span>

#include "storage-node/src/version/table.h"

namespace loam::storage {

/// Operations whose memory accesses overlap. Groups of 16 are worth a factor of 7 over one at a time on memory that
/// does not fit the caches; beyond 16 the gain is small and the line fill buffers are full.
inline constexpr size_t kBatchGroup = 16;

enum class PointKind : uint8_t {
  kGet,
  kInsert,
  kUpdate,
  kRemove,
  kRevert,
  kPlainGet,
  kPlainPut,
  kPlainRemove,
  kPlainMark,
};

/// One operation, and its outcome.
struct PointOperation {
  PointKind kind = PointKind::kGet;
  bool undo = false;       ///< kPlainPut: may use the reserve for undo
  uint8_t mark = 0;        ///< kPlainMark: the new value; out, of kPlainGet: as in ReadOutcome
  Table* table = nullptr;  ///< never null: the caller answers unknown tables itself
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

/// Executes the operations in order, group by group: first all buckets of a group are fetched, then all records, then
/// each operation runs. Outcomes are the same as one by one. Caller holds an epoch guard of the thread.
void execute(ThreadContext& thread, std::span<PointOperation> operations);

}  // namespace loam::storage
