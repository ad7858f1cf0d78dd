// Messages between a client and a storage node.
#pragma once

#include <algorithm>
#include <vector>

#include "common/base/ids.h"
#include "common/base/reserve.h"
#include "common/schema/projection.h"
#include "common/schema/query.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/catalog.h"
#include "common/wire/identity.h"
#include "common/wire/message.h"

namespace loam::wire {

/// Most operations in one Read, Write, Revert, PlainRead or PlainWrite; larger batches are split by the sender.
inline constexpr size_t kMaxOperations = 4096;

/// First message of a connection: on whose behalf it speaks (R3). The node refuses a session that is fenced (R7), and
/// an incarnation or a cluster that is not its own (R10).
struct Attach {
  static constexpr Opcode kOpcode = Opcode::kAttach;
  SessionId session;
  uint64_t manager_epoch = 0;
  Incarnation incarnation;  ///< of the node the client means
  ClusterId cluster{};      ///< of the session; zero: not told

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.session), v(m.manager_epoch), v(m.incarnation), v(m.cluster);
  }
};

struct Attached {
  static constexpr Opcode kOpcode = Opcode::kAttached;
  NodeId node;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.node);
  }
};

/// Names one record.
struct RecordId {
  TableId table;
  Key key;

  auto operator<=>(const RecordId&) const = default;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.table), v(m.key);
  }
};

/// Reads records of transactional tables as a snapshot sees them.
struct Read {
  static constexpr Opcode kOpcode = Opcode::kRead;
  Snapshot snapshot;
  std::vector<RecordId> records;  ///< of one table, if `projection` names any
  FieldNumbers projection{};      ///< of the table: rows of this projection are answered; none: whole rows

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.snapshot), v(m.records), v(m.projection);
  }
};

/// One record read: kOk with version and row, or kNotFound, kSnapshotTooOld, kNoSuchTable, kWrongShard, …
struct ReadResult {
  StatusCode code{};
  Version version;
  Bytes row;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.code);
    if (m.code == StatusCode::kOk) v(m.version), v(m.row);
  }
};

/// Results in the order of the request's records.
struct ReadReply {
  static constexpr Opcode kOpcode = Opcode::kReadReply;
  static constexpr bool kHasViews = true;
  std::vector<ReadResult> results;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.results);
  }
};

enum class WriteKind : uint8_t {
  kInsert = 1,
  kUpdate = 2,
  kRemove = 3,
  kUpdateFields = 4,  ///< some fields; the others are those of the version that it replaces
};

/// Conditional writes of one transaction: each succeeds only if the record's newest version is visible in the snapshot
/// (R16). The new version's number is the transaction's id.
struct Write {
  static constexpr Opcode kOpcode = Opcode::kWrite;
  struct Operation {
    WriteKind kind{};
    RecordId record;
    Bytes row;                  ///< empty for kRemove; of kUpdateFields a row of the projection
    FieldNumbers projection{};  ///< of kUpdateFields

    template <class Self, class V>
    static void fields(Self& m, V& v) {
      v(m.kind), v(m.record), v(m.row);
      if (m.kind == WriteKind::kUpdateFields) v(m.projection);
    }
  };
  TransactionId transaction;
  Snapshot snapshot;
  std::vector<Operation> operations;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.transaction), v(m.snapshot), v(m.operations);
  }
};

/// One write's outcome; with kConflict in a plain write, `version` is the present one.
struct WriteResult {
  StatusCode code{};
  Version version;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.code), v(m.version);
  }
};

/// Results in the order of the operations. `detail` explains the first failure that is more than its code
/// (a row that does not fit the schema, say).
struct WriteReply {
  static constexpr Opcode kOpcode = Opcode::kWriteReply;
  static constexpr bool kHasViews = true;
  std::vector<WriteResult> results;
  std::string_view detail;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.results), v(m.detail);
  }
};

/// Takes a transaction's own versions off (R2). Reverting what is not there succeeds; a version that another one covers
/// gets kConflict and stays (R8).
struct Revert {
  static constexpr Opcode kOpcode = Opcode::kRevert;
  TransactionId transaction;
  std::vector<RecordId> records;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.transaction), v(m.records);
  }
};

struct RevertReply {
  static constexpr Opcode kOpcode = Opcode::kRevertReply;
  std::vector<WriteResult> results;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.results);
  }
};

/// Reads the newest versions of records of non-transactional tables (R21).
struct PlainRead {
  static constexpr Opcode kOpcode = Opcode::kPlainRead;
  std::vector<RecordId> records;
  FieldNumbers projection{};  ///< as in Read

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.records), v(m.projection);
  }
};

struct PlainReadReply {
  static constexpr Opcode kOpcode = Opcode::kPlainReadReply;
  static constexpr bool kHasViews = true;
  std::vector<ReadResult> results;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.results);
  }
};

/// A change that a transaction makes in an index (R27), as the storage node remembers it (R5).
struct IndexIntent {
  TransactionId transaction;
  Key record;            ///< the record that has the value
  bool take = false;     ///< it loses the value; otherwise it gets it
  bool shared = false;   ///< as in IndexChange
  std::string_view key;  ///< of the index's tree

  bool operator==(const IndexIntent&) const = default;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.transaction), v(m.record), v(m.take), v(m.shared), v(m.key);
  }
};

/// Exact-version writes on non-transactional tables (R21). An insert expects absence; the other kinds expect `expected`
/// exactly. The answer carries the new version's number.
struct PlainWrite {
  static constexpr Opcode kOpcode = Opcode::kPlainWrite;
  struct Operation {
    WriteKind kind{};
    Reserve reserve = Reserve::kWrite;  ///< counts on indexes and the system's own tables alone; kUndo at most (R6)
    RecordId record;
    Version expected;
    Bytes row;
    FieldNumbers projection{};  ///< of kUpdateFields, as in Write

    template <class Self, class V>
    static void fields(Self& m, V& v) {
      v(m.kind), v(m.reserve), v(m.record), v(m.expected), v(m.row);
      if (m.kind == WriteKind::kUpdateFields) v(m.projection);
    }
  };
  std::vector<Operation> operations;
  /// The changes of transactions that this write of an index's node carries: remembered if and only if it succeeds
  /// (R5). Only with a single operation.
  std::vector<IndexIntent> intents{};

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.operations), v(m.intents);
  }
};

/// The code that the caller of a plain write gets for the node's code: an insert expects absence, so a record that
/// exists is kAlreadyExists; the other kinds expect presence, so an absent record is kConflict.
constexpr StatusCode plain_write_code(WriteKind kind, StatusCode code) {
  if (kind == WriteKind::kInsert) return code == StatusCode::kConflict ? StatusCode::kAlreadyExists : code;
  return code == StatusCode::kNotFound ? StatusCode::kConflict : code;
}

struct PlainWriteReply {
  static constexpr Opcode kOpcode = Opcode::kPlainWriteReply;
  static constexpr bool kHasViews = true;
  std::vector<WriteResult> results;
  std::string_view detail;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.results), v(m.detail);
  }
};

/// Something that an open transaction has written at a storage node (R5).
struct Intent {
  enum class Kind : uint8_t { kRecord = 1, kGive = 2, kTake = 3 };
  Kind kind{};
  TransactionId transaction;
  TableId table;  ///< of the record; of kGive and kTake: the index
  Key record;
  bool shared = false;  ///< of kGive and kTake, with `key`: as in IndexIntent
  std::string_view key{};

  bool operator==(const Intent&) const = default;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.kind), v(m.transaction), v(m.table), v(m.record);
    if (m.kind != Kind::kRecord) v(m.shared), v(m.key);
  }
};

/// Where a page of intents ends. Stays valid while intents come and go.
struct IntentPosition {
  SessionId session;
  uint64_t number = 0;

  auto operator<=>(const IntentPosition&) const = default;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.session), v(m.number);
  }
};

/// Asks for the intents of a session that is fenced at the node, or of all sessions (R8, R11). Recovery asks after the
/// node has acknowledged the fence: so no write of the session is under way.
struct Intents {
  static constexpr Opcode kOpcode = Opcode::kIntents;
  SessionId session;       ///< 0: of all
  IntentPosition after{};  ///< the end of the page before; zero: the first page

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.session), v(m.after);
  }
};

/// The intents of transactions that the newest publication at the node does not say are complete, in the order in which
/// the node recorded them, session by session.
struct IntentsReply {
  static constexpr Opcode kOpcode = Opcode::kIntentsReply;
  static constexpr bool kHasViews = true;
  std::vector<Intent> intents;
  bool more = false;     ///< there are others behind `end`
  IntentPosition end{};  ///< of this page
  uint64_t epoch = 0;    ///< of the newest publication that the node has seen, and its number
  uint64_t publication = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.intents), v(m.more), v(m.end), v(m.epoch), v(m.publication);
  }
};

/// Joins the table's shared scan. The node serves exactly the named shards, in that version of the
/// map, or refuses (R26). Chunks come as kScanChunk with this request's sequence, at most as many as credits were
/// given; kScanDone ends the stream. On a non-transactional table the snapshot is ignored.
struct Scan {
  static constexpr Opcode kOpcode = Opcode::kScan;
  TableId table;
  Snapshot snapshot;
  CatalogVersion map_version = 0;
  std::vector<uint16_t> shards;  ///< empty: all shards that the node owns in that version
  uint32_t credits = 0;          ///< chunks the node may send before it waits for kScanCredit
  Query query;
  uint64_t time_limit_ns = 0;         ///< from arrival; beyond: kTimeout. 0: none
  uint64_t progress_interval_ns = 0;  ///< kScanProgress no more often than this; 0: never
  bool explain = false;               ///< kScanDone says how the query would be evaluated, nothing is read
  /// Memory of the client for this scan's chunks (net::RemoteRegion), on offer until kScanDone: `credits` slots of
  /// region_bytes / credits each, used in turn. A slot is free again when the credit for its chunk is back. 0: none
  uint64_t region = 0;
  uint64_t region_bytes = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.table), v(m.snapshot), v(m.map_version), v(m.shards), v(m.credits), v(m.query);
    v(m.time_limit_ns), v(m.progress_interval_ns), v(m.explain), v(m.region), v(m.region_bytes);
  }
};

/// The size of a slot that a client should offer: every chunk fits into it but for those of longer texts and blobs,
/// since a node ends a chunk with the row that brings it to 256 KiB. The rest is that row, bitmaps of NULL, headers and
/// padding.
inline size_t scan_slot_bytes(const ResultSchema& columns) {
  constexpr size_t kChunk = size_t{256} << 10;
  constexpr size_t kColumn = 64;
  const bool variable =
      std::ranges::any_of(columns.columns, [](const Field& column) { return is_variable(column.type); });
  return kChunk + kChunk / kColumn + kColumn * (1 + columns.size()) + (variable ? kChunk / 4 : 0);
}

/// Rows, column-wise, in the Arrow layout of common/schema/chunk.h: in the message, or, written before it, in a slot of
/// the region that the scan named.
struct ScanChunk {
  static constexpr Opcode kOpcode = Opcode::kScanChunk;
  static constexpr bool kHasViews = true;
  Bytes chunk;                 ///< empty: in the slot
  uint32_t slot = 0;           ///< its number
  uint32_t bytes_in_slot = 0;  ///< from the slot's beginning

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.chunk), v(m.slot), v(m.bytes_in_slot);
  }
};

/// What a query cost.
struct ScanStatistics {
  uint64_t pages = 0;          ///< pages read
  uint64_t pages_skipped = 0;  ///< pages that could hold nothing that the query selects
  uint64_t pages_total = 0;    ///< pages of the table when the query joined
  uint64_t records = 0;        ///< entries looked at
  uint64_t rows = 0;           ///< rows that matched
  uint64_t chunks = 0;
  uint64_t bytes = 0;       ///< of chunks
  uint64_t busy_ns = 0;     ///< time of scan threads; of what queries share, each has an equal part
  uint64_t queued_ns = 0;   ///< from arrival to the first page
  uint64_t elapsed_ns = 0;  ///< from arrival to the end

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.pages), v(m.pages_skipped), v(m.pages_total), v(m.records), v(m.rows), v(m.chunks), v(m.bytes);
    v(m.busy_ns), v(m.queued_ns), v(m.elapsed_ns);
  }
};

struct ScanDone {
  static constexpr Opcode kOpcode = Opcode::kScanDone;
  static constexpr bool kHasViews = true;
  Status status;
  ScanStatistics statistics;
  uint64_t retry_after_ns = 0;  ///< as in Error
  std::string_view plan{};      ///< if the scan asked to explain: lines of text

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.status), v(m.statistics), v(m.retry_after_ns), v(m.plan);
  }
};

/// How far the scan with this message's sequence has come.
struct ScanProgress {
  static constexpr Opcode kOpcode = Opcode::kScanProgress;
  ScanStatistics statistics;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.statistics);
  }
};

/// `credits` more chunks may be sent for the scan with this message's sequence.
struct ScanCredit {
  static constexpr Opcode kOpcode = Opcode::kScanCredit;
  uint32_t credits = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.credits);
  }
};

/// Ends the scan with this message's sequence.
struct ScanCancel {
  static constexpr Opcode kOpcode = Opcode::kScanCancel;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

}  // namespace loam::wire
