// Messages between clients and storage nodes. docs/wire-protocol.md describes their course.
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

/// Largest number of operations in one Read, Write, Revert, PlainRead or PlainWrite. The sender splits larger batches.
inline constexpr size_t kMaxOperations = 4096;

/// The first message of a connection to a storage node: names the session whose requests follow (R3, idempotent
/// requests within a session). The storage node refuses a fenced session (R7, fence barrier), and an incarnation or a
/// cluster that is not its own (R10, cluster identity and incarnations).
struct Attach {
  static constexpr Opcode kOpcode = Opcode::kAttach;
  SessionId session;
  uint64_t manager_epoch = 0;  ///< epoch of the commit manager that opened the session
  Incarnation incarnation;     ///< the incarnation of the storage node that the client's catalog names
  ClusterId cluster{};         ///< the cluster of the session; zero: unknown

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.session), v(m.manager_epoch), v(m.incarnation), v(m.cluster);
  }
};

/// Reply to Attach: the storage node accepts requests of the session on this connection.
struct AttachReply {
  static constexpr Opcode kOpcode = Opcode::kAttachReply;
  NodeId node;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.node);
  }
};

/// Names one record of the cluster.
struct RecordId {
  TableId table;
  Key key;

  auto operator<=>(const RecordId&) const = default;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.table), v(m.key);
  }
};

/// Reads records of transactional tables in a snapshot.
struct Read {
  static constexpr Opcode kOpcode = Opcode::kRead;
  Snapshot snapshot;
  std::vector<RecordId> records;  ///< at most kMaxOperations; with a projection, all of one table
  FieldNumbers projection{};      ///< the fields of the answered rows; empty: whole rows
  /// Number of added fields (Schema::added()) that the client's schema has. Whole rows are answered in this schema. If
  /// it is not 0, all records are of one table. kUnavailable for a storage node that knows fewer.
  uint8_t added = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.snapshot), v(m.records), v(m.projection), v(m.added);
  }
};

/// The outcome for one record of a read: kOk with version and row, or kNotFound, kSnapshotTooOld, kNoSuchTable,
/// kWrongShard, …
struct ReadResult {
  StatusCode code{};
  Version version;  ///< the version that the snapshot sees; only with kOk
  Bytes row;        ///< only with kOk; a view into the message

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.code);
    if (m.code == StatusCode::kOk) v(m.version), v(m.row);
  }
};

/// Reply to Read, with the results in the order of the request's records.
struct ReadReply {
  static constexpr Opcode kOpcode = Opcode::kReadReply;
  static constexpr bool kHasViews = true;
  std::vector<ReadResult> results;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.results);
  }
};

/// The kind of a write operation.
enum class WriteKind : uint8_t {
  kInsert = 1,        ///< writes a record that does not exist
  kUpdate = 2,        ///< replaces the row of an existing record; added fields that it does not have keep their values
  kRemove = 3,        ///< removes an existing record
  kUpdateFields = 4,  ///< replaces some fields of an existing record; the others keep their values
  kReplace = 5,       ///< replaces the row of an existing record; added fields that it does not have become NULL
};

/// Whether a write of this kind brings a whole row, which has the number of added fields that the operation names.
constexpr bool has_whole_row(WriteKind kind) {
  return kind == WriteKind::kInsert || kind == WriteKind::kUpdate || kind == WriteKind::kReplace;
}

/// Conditional writes of one transaction on transactional tables. Each succeeds only if the newest version of the
/// record is visible in the snapshot (R16, claim first). The new version has the id of the transaction as its number.
struct Write {
  static constexpr Opcode kOpcode = Opcode::kWrite;
  struct Operation {
    WriteKind kind{};
    RecordId record;
    Bytes row;                  ///< empty for kRemove; for kUpdateFields a row of the projection
    FieldNumbers projection{};  ///< for kUpdateFields: the fields to replace
    uint8_t added = 0;          ///< number of added fields of the client's schema, and of a whole row; not for kRemove

    template <class Self, class V>
    static void fields(Self& m, V& v) {
      v(m.kind), v(m.record), v(m.row);
      if (m.kind == WriteKind::kUpdateFields) v(m.projection);
      if (m.kind != WriteKind::kRemove) v(m.added);
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

/// The outcome of one write operation.
struct WriteResult {
  StatusCode code{};
  Version version;  ///< number of the new version; with kConflict in a plain write: of the present version

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.code), v(m.version);
  }
};

/// Reply to Write, with the results in the order of the operations.
struct WriteReply {
  static constexpr Opcode kOpcode = Opcode::kWriteReply;
  static constexpr bool kHasViews = true;
  std::vector<WriteResult> results;
  std::string_view detail;  ///< explains the first failure that needs more than its code, such as a row of a wrong size

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.results), v(m.detail);
  }
};

/// Removes the versions that a transaction has written (R2, abort order). A record without such a version counts as
/// reverted. If another version has superseded the transaction's own one, the result is kConflict and the version
/// stays (R8, recovery after the fence).
struct Revert {
  static constexpr Opcode kOpcode = Opcode::kRevert;
  TransactionId transaction;
  std::vector<RecordId> records;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.transaction), v(m.records);
  }
};

/// Reply to Revert, with the results in the order of the records.
struct RevertReply {
  static constexpr Opcode kOpcode = Opcode::kRevertReply;
  std::vector<WriteResult> results;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.results);
  }
};

/// Reads the newest versions of records of non-transactional tables (R21, exact-version writes).
struct PlainRead {
  static constexpr Opcode kOpcode = Opcode::kPlainRead;
  std::vector<RecordId> records;  ///< at most kMaxOperations
  FieldNumbers projection{};      ///< as in Read
  uint8_t added = 0;              ///< as in Read

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.records), v(m.projection), v(m.added);
  }
};

/// Reply to PlainRead, with the results in the order of the request's records.
struct PlainReadReply {
  static constexpr Opcode kOpcode = Opcode::kPlainReadReply;
  static constexpr bool kHasViews = true;
  std::vector<ReadResult> results;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.results);
  }
};

/// The intent of an index change: the storage node notes that a transaction adds or removes an index entry (R5,
/// intents before answers; R27, index entries).
struct IndexIntent {
  TransactionId transaction;
  Key record;            ///< the record to which the entry leads
  bool remove = false;   ///< whether the record loses the indexed value; otherwise it gets the value
  bool shared = false;   ///< as in IndexChange
  std::string_view key;  ///< the key of the entry in the tree of the index

  bool operator==(const IndexIntent&) const = default;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.transaction), v(m.record), v(m.remove), v(m.shared), v(m.key);
  }
};

/// Compare-and-swap writes on non-transactional tables (R21). An insert succeeds only if the record does not exist.
/// The other kinds succeed only if the version of the record is `expected`. The result has the number of the new
/// version.
struct PlainWrite {
  static constexpr Opcode kOpcode = Opcode::kPlainWrite;
  struct Operation {
    WriteKind kind{};
    Reserve reserve = Reserve::kWrite;  ///< kUndo at most; ignored except in indexes and system tables (R6, reserves)
    RecordId record;
    Version expected;           ///< the version to replace; not used by kInsert
    Bytes row;                  ///< as in Write
    FieldNumbers projection{};  ///< for kUpdateFields, as in Write
    uint8_t added = 0;          ///< as in Write

    template <class Self, class V>
    static void fields(Self& m, V& v) {
      v(m.kind), v(m.reserve), v(m.record), v(m.expected), v(m.row);
      if (m.kind == WriteKind::kUpdateFields) v(m.projection);
      if (m.kind != WriteKind::kRemove) v(m.added);
    }
  };
  std::vector<Operation> operations;
  /// The index changes that this write of a tree node makes on behalf of transactions. The storage node notes them if
  /// and only if the write succeeds (R5). Only allowed with a single operation.
  std::vector<IndexIntent> intents{};

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.operations), v(m.intents);
  }
};

/// Translates the storage node's code for a plain write into the code for the application. An insert that finds a
/// record fails with kAlreadyExists. Any other kind that finds no record fails with kConflict.
constexpr StatusCode plain_write_code(WriteKind kind, StatusCode code) {
  if (kind == WriteKind::kInsert) return code == StatusCode::kConflict ? StatusCode::kAlreadyExists : code;
  return code == StatusCode::kNotFound ? StatusCode::kConflict : code;
}

/// Reply to PlainWrite, with the fields of WriteReply.
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

/// A write of an open transaction that a storage node has noted, so that recovery can undo it (R5).
struct Intent {
  /// The kind of the write.
  enum class Kind : uint8_t {
    kRecord = 1,       ///< a version of a record
    kIndexInsert = 2,  ///< an index entry that the transaction has added
    kIndexRemove = 3,  ///< an index entry that the transaction has ended
  };
  Kind kind{};
  TransactionId transaction;
  TableId table;           ///< for kRecord the table of the record, otherwise the index
  Key record;              ///< the written record, or the record to which the index entry leads
  bool shared = false;     ///< for index entries: as in IndexIntent
  std::string_view key{};  ///< for index entries: as in IndexIntent

  bool operator==(const Intent&) const = default;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.kind), v(m.transaction), v(m.table), v(m.record);
    if (m.kind != Kind::kRecord) v(m.shared), v(m.key);
  }
};

/// A position in the intents of a storage node, at which one IntentsReply ends and the next begins. It stays valid
/// while intents are added and dropped.
struct IntentPosition {
  SessionId session;    ///< the session of the last named intent
  uint64_t number = 0;  ///< number of this intent within its session

  auto operator<=>(const IntentPosition&) const = default;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.session), v(m.number);
  }
};

/// Asks a storage node for the intents of a fenced session, or of all sessions (R8; R11, restart of the commit
/// manager). Recovery sends it after the storage node has acknowledged the fence, so no write of the session is
/// running.
struct Intents {
  static constexpr Opcode kOpcode = Opcode::kIntents;
  SessionId session;       ///< 0: all sessions
  IntentPosition after{};  ///< `end` of the IntentsReply before; zero: from the first intent

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.session), v(m.after);
  }
};

/// Reply to Intents: some intents, session by session, in the order in which the storage node noted them. Intents
/// that the newest publication at the storage node covers are left out.
struct IntentsReply {
  static constexpr Opcode kOpcode = Opcode::kIntentsReply;
  static constexpr bool kHasViews = true;
  std::vector<Intent> intents;
  bool more = false;         ///< whether intents after `end` remain
  IntentPosition end{};      ///< the position after the last intent of this reply
  uint64_t epoch = 0;        ///< epoch of the newest publication at the storage node
  uint64_t publication = 0;  ///< number of this publication

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.intents), v(m.more), v(m.end), v(m.epoch), v(m.publication);
  }
};

/// Largest number of records that a scan leaves out (Scan::without).
inline constexpr size_t kMaxScanWithout = 65'536;

/// Runs a query at a storage node, as part of the table's shared scan. The storage node serves exactly the named
/// shards in the named version of the shard map, or answers kWrongShard (R26, shards of a scan). It sends the results
/// as ScanChunk messages with the sequence of this request, one for each credit, and then one ScanDone.
struct Scan {
  static constexpr Opcode kOpcode = Opcode::kScan;
  TableId table;
  Snapshot snapshot;               ///< ignored for a non-transactional table
  CatalogVersion map_version = 0;  ///< version of the shard map that the client knows
  std::vector<uint16_t> shards;    ///< virtual shards to scan; empty: all shards that the storage node owns
  uint32_t credits = 0;            ///< number of chunks that the storage node may send before it needs a ScanCredit
  Query query;
  uint64_t time_limit_ns = 0;         ///< time from the arrival after which the scan ends with kTimeout; 0: no limit
  uint64_t progress_interval_ns = 0;  ///< shortest time between two ScanProgress messages; 0: none are sent
  bool explain = false;               ///< whether ScanDone returns only the plan of the query; then no record is read
  /// A region of the client's memory into which the storage node writes the chunks (id of a net::RemoteRegion); 0:
  /// none. The client offers it until ScanDone. It consists of `credits` slots of region_bytes / credits bytes each,
  /// which the storage node uses in turn. A slot is free again when the client has given back the credit of its
  /// chunk.
  uint64_t region = 0;
  uint64_t region_bytes = 0;  ///< size of the region
  /// Keys of records that the scan leaves out, ascending, at most kMaxScanWithout: the transaction has written them,
  /// and its client adds their new rows.
  std::vector<Key> without;
  uint8_t added = 0;  ///< as in Read

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.table), v(m.snapshot), v(m.map_version), v(m.shards), v(m.credits), v(m.query);
    v(m.time_limit_ns), v(m.progress_interval_ns), v(m.explain), v(m.region), v(m.region_bytes), v(m.without);
    v(m.added);
  }
};

/// The size in bytes of a slot that a client should offer for a scan with these result columns. Every chunk fits,
/// except chunks with long texts or blobs. A storage node ends a chunk with the row that brings it to 256 KiB; the
/// remainder of the slot is for this row, the NULL bitmaps, headers and padding.
inline size_t scan_slot_bytes(const ResultSchema& columns) {
  constexpr size_t kChunk = size_t{256} << 10;
  constexpr size_t kColumn = 64;
  const bool variable =
      std::ranges::any_of(columns.columns, [](const Field& column) { return is_variable(column.type); });
  return kChunk + kChunk / kColumn + kColumn * (1 + columns.size()) + (variable ? kChunk / 4 : 0);
}

/// A part of a scan's result, column-wise in the Arrow layout of common/schema/chunk.h. The chunk is in the message,
/// or in a slot of the scan's region, into which the storage node has written it before.
struct ScanChunk {
  static constexpr Opcode kOpcode = Opcode::kScanChunk;
  static constexpr bool kHasViews = true;
  Bytes chunk;                 ///< the chunk; empty: it is in the slot
  uint32_t slot = 0;           ///< number of the slot
  uint32_t bytes_in_slot = 0;  ///< size of the chunk, which begins at the begin of the slot

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.chunk), v(m.slot), v(m.bytes_in_slot);
  }
};

/// The cost of a query at one storage node.
struct ScanStatistics {
  uint64_t pages = 0;          ///< pages read
  uint64_t pages_skipped = 0;  ///< pages skipped because no entry in them can match
  uint64_t pages_total = 0;    ///< pages of the table when the query joined the scan
  uint64_t records = 0;        ///< entries examined
  uint64_t rows = 0;           ///< rows that matched
  uint64_t chunks = 0;         ///< chunks sent
  uint64_t bytes = 0;          ///< bytes of these chunks
  uint64_t busy_ns = 0;        ///< time of scan threads; queries that share work get equal parts of its time
  uint64_t queued_ns = 0;      ///< time from the arrival to the first page
  uint64_t elapsed_ns = 0;     ///< time from the arrival to the end

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.pages), v(m.pages_skipped), v(m.pages_total), v(m.records), v(m.rows), v(m.chunks), v(m.bytes);
    v(m.busy_ns), v(m.queued_ns), v(m.elapsed_ns);
  }
};

/// The last message of a scan.
struct ScanDone {
  static constexpr Opcode kOpcode = Opcode::kScanDone;
  static constexpr bool kHasViews = true;
  Status status;
  ScanStatistics statistics;
  uint64_t retry_after_ns = 0;  ///< as in Error
  std::string_view plan{};      ///< for Scan::explain: the plan of the query, as lines of text

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.status), v(m.statistics), v(m.retry_after_ns), v(m.plan);
  }
};

/// The statistics so far of the scan that has the sequence of this message.
struct ScanProgress {
  static constexpr Opcode kOpcode = Opcode::kScanProgress;
  ScanStatistics statistics;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.statistics);
  }
};

/// Permits the storage node to send `credits` more chunks of the scan that has the sequence of this message.
struct ScanCredit {
  static constexpr Opcode kOpcode = Opcode::kScanCredit;
  uint32_t credits = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.credits);
  }
};

/// Ends the scan that has the sequence of this message. ScanDone follows.
struct ScanCancel {
  static constexpr Opcode kOpcode = Opcode::kScanCancel;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

}  // namespace loam::wire
