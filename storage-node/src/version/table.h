// One table of a storage node: its records with their versions, accessible by key and by scan.
//
//     PagePool, EpochDomain, VersionSource: a node has one of each
//     LOAM_ASSIGN_OR_RETURN(auto table, Table::create({.id = id, .kind = kind, .writers = n},
//                                                     {pool, epochs, versions}));
//     ThreadContext me(epoch_thread, writer_number);  // one for each thread
//     EpochGuard guard(me.epochs());                  // one for each batch
//     WriteOutcome w = table->insert(me, key, snapshot, transaction, row);
//     ReadOutcome r = table->get(me, key, snapshot);  // r.row points into the log: copy it before the guard ends
//     execute(me, operations);                        // executes many operations in stages: batch.h
//     PinnedPages pages = table->pages().pin();       // a scan: calls lifetime_of() (entry.h) for each entry
//
// chain.h describes the steps of the operations and why they are right.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <loam/storage/statistics.h>

#include "common/base/bytes.h"
#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/memory/page_pool.h"
#include "common/schema/projection.h"
#include "common/schema/schema.h"
#include "common/snapshot/snapshot.h"
#include "storage-node/src/index/hash_index.h"
#include "storage-node/src/log/row_schemas.h"
#include "storage-node/src/log/table_log.h"
#include "storage-node/src/log/thread_context.h"
#include "storage-node/src/version/chain.h"
#include "storage-node/src/version/version_source.h"

namespace loam::storage {

/// The identity and the sizes of a table.
struct TableOptions {
  TableId id;
  TableKind kind = TableKind::kTransactional;
  /// Number of threads that may write. ThreadContext::writer() of each is below it.
  size_t writers = 1;
  /// Slots of the index at creation.
  size_t index_slots = 1024;
  LogOptions log = {};
  /// The schema of the rows, which the compactor needs for column pages. Null: the table gets no column pages, and no
  /// added fields.
  std::shared_ptr<const Schema> schema = {};
};

/// The objects that all tables of a node share. They outlive the tables.
struct TableResources {
  PagePool& pool;
  VersionSource& versions;
};

/// The outcome of a read. `row` points into the log or into memory of the thread. It is valid until the caller's epoch
/// guard ends.
struct ReadOutcome {
  StatusCode code = StatusCode::kNotFound;
  Version version;
  Bytes row;
};

/// The status code of a write that finds no memory.
///
/// An ordinary write gets kNoSpace: it fails until records are removed. A write that helps to free memory (R6, room
/// before the claim) gets kOverloaded: its reserve is used up for the moment. Garbage collection refills the reserve,
/// so the client repeats the write.
constexpr StatusCode no_space_code(Reserve reserve) {
  return reserve == Reserve::kWrite ? StatusCode::kNoSpace : StatusCode::kOverloaded;
}

/// The outcome of a write.
///
/// `version` depends on the code. kOk: the new version; after a remove in a non-transactional table, the removed
/// version. kConflict and kAlreadyExists: the newest version, 0 if the record is absent.
struct WriteOutcome {
  StatusCode code = StatusCode::kOk;
  Version version;
};

/// One write to a transactional table.
struct VersionWrite {
  EntryKind kind = EntryKind::kPut;
  bool insert = false;  ///< true: the record must be absent; false: it must exist
  Reserve reserve = Reserve::kWrite;
  const Snapshot* snapshot = nullptr;  ///< never null; the caller owns it
  TransactionId transaction;
  NewRow row = {};  ///< the caller owns its bytes

  static VersionWrite insert_of(const Snapshot& snapshot, TransactionId transaction, Bytes row, uint8_t added = 0) {
    return {EntryKind::kPut, true, Reserve::kWrite, &snapshot, transaction, {row, nullptr, added}};
  }
  static VersionWrite update_of(const Snapshot& snapshot, TransactionId transaction, const NewRow& row) {
    return {EntryKind::kPut, false, Reserve::kWrite, &snapshot, transaction, row};
  }
  static VersionWrite remove_of(const Snapshot& snapshot, TransactionId transaction) {
    return {EntryKind::kTombstone, false, Reserve::kRemove, &snapshot, transaction, {}};
  }
};

/// The records of one table: a log of versions, and an index of the newest ones.
///
/// Owner: the registry of the node. Life: until no thread uses the table, no scan pins its pages, and its compactor has
/// ended; compact/compactor.h takes care of that.
/// Threads: any thread that has its own ThreadContext, inside an epoch guard. Operations never wait for each other.
///
/// Duties of the caller, which the session layer of the server fulfils:
/// 1. The id of a transaction is higher than every version that its snapshot sees (R12, ids at begin). The table checks
///    this duty: kInvalidArgument.
/// 2. revert(key, id) comes after the replies to all writes of (key, id) (R2, abort order; R7, fence barrier). A
///    repeated write or revert does not run at the same time as the original (R3, idempotent requests).
/// 3. The newest publication covers the snapshot when the guard begins (R14, refusal of old snapshots).
class Table {
 public:
  /// Creates an empty table. kNoSpace if the pool has no memory for the index, kInvalidArgument for options out of
  /// range.
  static Result<std::unique_ptr<Table>> create(const TableOptions& options, const TableResources& resources);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  TableId id() const { return options_.id; }
  TableKind kind() const { return options_.kind; }
  /// The schema with all added fields. Null: TableOptions had none.
  const Schema* schema() const { return schemas_ == nullptr ? nullptr : &schemas_->newest(); }
  /// The schemas of rows with fewer added fields. Null: TableOptions had no schema.
  const RowSchemas* schemas() const { return schemas_.get(); }
  /// Takes over added fields, before a request may name them. Control thread only.
  void extend(const Schema& schema) { schemas_->extend(schema); }

  // Operations on transactional tables. A table of the other kind answers kWrongTableKind.

  /// Reads the newest version that the snapshot sees. kNotFound if there is none, or if it is a removal. Wait-free
  /// except the index lookup; costs one hop for each version that is newer than the result.
  ReadOutcome get(ThreadContext& thread, Key key, const Snapshot& snapshot) {
    return get_at(thread, index_->find(key), snapshot);
  }
  /// Inserts a record. kConflict if the snapshot does not see the newest version or a writer has claimed it;
  /// kAlreadyExists; kNoSpace; kInvalidArgument (the row exceeds max_row_bytes()). If the transaction has written the
  /// record before, the call counts as a repetition and returns kOk without a change (R3).
  WriteOutcome insert(ThreadContext& thread, Key key, const Snapshot& snapshot, TransactionId transaction, Bytes row) {
    return write_at(thread, index_->find(key), VersionWrite::insert_of(snapshot, transaction, row));
  }
  /// Updates a record. Errors are those of insert(), with kNotFound instead of kAlreadyExists. With `projection`, `row`
  /// has the fields of the projection; the other fields come from the replaced version, which is exactly the one that
  /// the call claims.
  WriteOutcome update(ThreadContext& thread, Key key, const Snapshot& snapshot, TransactionId transaction, Bytes row,
                      const Projection* projection = nullptr) {
    return write_at(thread, index_->find(key), VersionWrite::update_of(snapshot, transaction, {row, projection}));
  }
  /// Removes a record: writes a tombstone. Errors are those of update(), with kOverloaded instead of kNoSpace, since
  /// the tombstone may use the reserve for removes (R6).
  WriteOutcome remove(ThreadContext& thread, Key key, const Snapshot& snapshot, TransactionId transaction) {
    return write_at(thread, index_->find(key), VersionWrite::remove_of(snapshot, transaction));
  }
  /// Removes the transaction's own version of a record. kOk also if there is none. Allocates no memory. kConflict if a
  /// newer version follows, which means that the transaction was completed before.
  WriteOutcome revert(ThreadContext& thread, Key key, TransactionId transaction) {
    return revert_at(thread, index_->find(key), transaction);
  }

  // Operations on non-transactional tables (R21, exact-version writes). A table of the other kind answers
  // kWrongTableKind.

  /// Reads the newest version. kNotFound if the record is absent.
  ReadOutcome plain_get(ThreadContext& thread, Key key) { return plain_get_at(thread, index_->find(key)); }
  /// Writes the row if the newest version is exactly `expected`; 0 means that the record is absent. Otherwise kConflict
  /// and the newest version. `reserve` is the memory class (R6). With `projection`, `row` has the fields of the
  /// projection, and the other fields come from the expected version; kNotFound if that is 0. kNoSpace or kOverloaded
  /// without room, kInvalidArgument for a row over the limit, kUnavailable if the version numbers are used up.
  WriteOutcome plain_put(ThreadContext& thread, Key key, Version expected, Bytes row, Reserve reserve = Reserve::kWrite,
                         const Projection* projection = nullptr) {
    return plain_put_at(thread, index_->find(key), expected, {row, projection}, reserve);
  }
  /// Removes the record if its version is exactly `expected`, otherwise kConflict. kInvalidArgument if `expected` is 0.
  /// Allocates no memory.
  WriteOutcome plain_remove(ThreadContext& thread, Key key, Version expected) {
    return plain_remove_at(thread, index_->find(key), expected);
  }

  // These functions execute the operations above from a lookup that the caller has done. `found` stems from
  // HashIndex::find() or confirm(), in the present guard, whether or not the lookup found the key.

  /// `schema` is that of the answered row; null: the row as it is stored.
  ReadOutcome get_at(ThreadContext& thread, const Cursor& found, const Snapshot& snapshot,
                     const Schema* schema = nullptr);
  /// `speculative` is the entry that append_speculative() returned for this write, or null.
  WriteOutcome write_at(ThreadContext& thread, const Cursor& found, const VersionWrite& request,
                        Entry* speculative = nullptr);
  WriteOutcome revert_at(ThreadContext& thread, const Cursor& found, TransactionId transaction);
  ReadOutcome plain_get_at(ThreadContext& thread, const Cursor& found, const Schema* schema = nullptr);
  WriteOutcome plain_put_at(ThreadContext& thread, const Cursor& found, Version expected, const NewRow& row,
                            Reserve reserve);
  WriteOutcome plain_remove_at(ThreadContext& thread, const Cursor& found, Version expected);

  /// Appends the entry of a write before the write runs, if the write will probably succeed.
  ///
  /// So the entries of a group are written one after another, before the first atomic operation, which waits until all
  /// earlier stores are done. Null if the write will probably fail, or if only write_at() can decide.
  /// The caller must pass the entry to write_at() in the same guard, also if the record has changed meanwhile. Until
  /// then a scan takes the entry for a version of an unfinished transaction.
  Entry* append_speculative(ThreadContext& thread, const Cursor& found, const VersionWrite& request);

  // Access for scans, the compactor and statistics.

  PageList& pages() { return log_.pages(); }
  const PageList& pages() const { return log_.pages(); }
  TableLog& log() { return log_; }
  HashIndex& index() { return *index_; }
  /// The largest row that the table accepts, in bytes.
  size_t max_row_bytes() const;
  /// Keys in the index: records, and removed records whose tombstone is not collected.
  size_t keys() const;
  /// The sums of the counters of all threads.
  TableCounters counters() const;
  /// Counts a scan that begins. Cold pages of scanned tables become column pages. Any thread.
  void count_scan() {
    // Relaxed: a statistic.
    scans_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Scans that have begun.
  uint64_t scans() const { return scans_.load(std::memory_order_relaxed); }

  /// The version up to which every open and every later snapshot sees all versions. No thread follows the pointer of
  /// such a version to an older one (chain.h). 0 until the compactor has raised it.
  Version horizon() const {
    // Relaxed: the compactor waits for an epoch between a rise and its use. A thread that reads an older value only
    // follows more pointers, all of them still valid.
    return Version(horizon_.load(std::memory_order_relaxed));
  }
  /// Raises the horizon; a lower value has no effect. Only the compactor calls it, a reclamation epoch before it drops
  /// a version by the new horizon.
  void raise_horizon(Version horizon) {
    // Relaxed: as in horizon(); only one thread writes it.
    horizon_.store(std::max(this->horizon(), horizon).value, std::memory_order_relaxed);
  }

  /// Checks index, chains and log. Returns the first breach, or "".
  ///
  /// Every chain is sorted, begins with an open version, and leads through live entries of listed pages only. Every
  /// live entry of a listed page that was not superseded up to the horizon is in the chain of its key exactly once.
  /// The call includes TableLog::check_invariants(). No other thread uses the table meanwhile, and no compaction is
  /// under way.
  std::string check_invariants();

 private:
  /// The counters of one thread, in cache lines of their own.
  struct alignas(64) Counters : TableNumbers<statistics::Counter> {};
  /// Checks the request without the record. kOk, kWrongTableKind or kInvalidArgument.
  StatusCode check(const VersionWrite& request) const;
  Entry* append(ThreadContext& thread, const VersionWrite& request, Key key, const Chain::NewestVersion& newest,
                Bytes before);
  bool has_version_below(const Chain::NewestVersion& newest, Version version) const;
  static void kill_lost_entry(Counters& counters, Entry* entry);

  Table(const TableOptions& options, const TableResources& resources, std::unique_ptr<HashIndex> index);

  // Constant after construction.
  const TableOptions options_;
  const std::unique_ptr<RowSchemas> schemas_;  // null without a schema; outlives the pages, which refer to the schemas
  const TableResources resources_;
  const std::unique_ptr<HashIndex> index_;
  const std::unique_ptr<Counters[]> counters_;  // element i: written by writer i, read by counters()
  TableLog log_;
  // Written by the compactor, read by operations that walk behind a newest version.
  Env::Atomic<uint64_t> horizon_{0};
  // Written by threads that begin a scan, read by the compactor.
  Env::Atomic<uint64_t> scans_{0};
};

}  // namespace loam::storage
