// One table of a storage node: records with their versions, by key and by scan.
//
//     PagePool, EpochDomain, VersionSource: one of each a node
//     LOAM_ASSIGN_OR_RETURN(auto table, Table::create({.id = id, .kind = kind, .writers = n},
//                                                     {pool, epochs, versions}));
//     ThreadContext me(epoch_thread, writer_number);  // one a thread
//     EpochGuard guard(me.epochs());                  // one a batch
//     WriteOutcome w = table->insert(me, key, snapshot, transaction, row);
//     ReadOutcome r = table->get(me, key, snapshot);  // r.row points into the log: copy it before guard ends
//     execute(me, operations);                        // executes many operations in stages: batch.h
//     PinnedPages pages = table->pages().pin();       // a scan: entry.h's judge() on each entry
//
// How the operations work, and why they are right, stands in chain.h.
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
#include "storage-node/src/log/table_log.h"
#include "storage-node/src/log/thread_context.h"
#include "storage-node/src/version/chain.h"
#include "storage-node/src/version/version_source.h"

namespace loam::storage {

struct TableOptions {
  TableId id;
  TableKind kind = TableKind::kTransactional;
  /// Threads that may write: ThreadContext::writer() is below it.
  size_t writers = 1;
  /// Slots of the index at first.
  size_t index_slots = 1024;
  LogOptions log = {};
  /// Transactional tables: of all rows, so that the compactor can write column pages; null: it writes none.
  std::shared_ptr<const Schema> schema = {};
};

/// What a node's tables share; outlives them.
struct TableResources {
  PagePool& pool;
  VersionSource& versions;
};

/// Outcome of a read. `row` points into the log or the thread's memory and is valid until the caller's epoch guard
/// ends.
struct ReadOutcome {
  StatusCode code = StatusCode::kNotFound;
  Version version;
  Bytes row;
};

/// What a write gets that finds no room. An ordinary write is refused until something is removed. Writes that free
/// memory (R6) have used up their reserve for the moment: garbage collection makes room for them, so their clients
/// repeat them.
constexpr StatusCode no_room(Reserve reserve) {
  return reserve == Reserve::kWrite ? StatusCode::kNoSpace : StatusCode::kOverloaded;
}

/// Outcome of a write. `version`: with kOk the new version (of a remove in a non-transactional table: the removed one);
/// with kConflict and kAlreadyExists the newest one that was met, 0 if the record is absent.
struct WriteOutcome {
  StatusCode code = StatusCode::kOk;
  Version version;
};

/// One write to a transactional table.
struct VersionWrite {
  EntryKind kind = EntryKind::kPut;
  bool insert = false;  ///< the record must be absent; otherwise it must be there
  Reserve reserve = Reserve::kWrite;
  const Snapshot* snapshot = nullptr;  ///< never null; the caller's
  TransactionId transaction;
  NewRow row = {};  ///< the caller's

  static VersionWrite insert_of(const Snapshot& snapshot, TransactionId transaction, Bytes row) {
    return {EntryKind::kPut, true, Reserve::kWrite, &snapshot, transaction, {row}};
  }
  static VersionWrite update_of(const Snapshot& snapshot, TransactionId transaction, const NewRow& row) {
    return {EntryKind::kPut, false, Reserve::kWrite, &snapshot, transaction, row};
  }
  static VersionWrite remove_of(const Snapshot& snapshot, TransactionId transaction) {
    return {EntryKind::kTombstone, false, Reserve::kRemove, &snapshot, transaction, {}};
  }
};

/// Role: the storage of one table. Owner: the node's registry. Life: destroyed when no thread uses it, no scan pins its
/// pages, and its compactor is gone (compact/compactor.h does that). Threads: operations by any thread with a
/// ThreadContext of its own, inside an epoch guard; they never wait for one another.
///
/// What a caller must keep (the server's session layer does):
/// 1. A transaction's id is higher than every version that its snapshot sees (R12), checked: kInvalidArgument.
/// 2. revert(key, id) only when every write of (key, id) has been answered (R2, R7); a repetition of a write or revert
///    does not run at the same time as the original (R3).
/// 3. A snapshot is covered by the newest publication when the guard begins (R14).
class Table {
 public:
  /// kNoSpace if the index gets no memory; kInvalidArgument for options out of range.
  static Result<std::unique_ptr<Table>> create(const TableOptions& options, const TableResources& resources);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  TableId id() const { return options_.id; }
  TableKind kind() const { return options_.kind; }
  /// Null: rows never lie in columns.
  const Schema* schema() const { return options_.schema.get(); }

  // Transactional tables; kWrongTableKind on others.

  /// The newest version visible in the snapshot; kNotFound if there is none, or it is a removal. Wait-free but for the
  /// index: one hop a version newer than the one found.
  ReadOutcome get(ThreadContext& thread, Key key, const Snapshot& snapshot) {
    return get_found(thread, index_->find(key), snapshot);
  }
  /// kConflict (the newest version is not visible, or is being changed), kAlreadyExists, kNoSpace, kInvalidArgument
  /// (row over the limit). A repeated write of this transaction is the same write: kOk (R3).
  WriteOutcome insert(ThreadContext& thread, Key key, const Snapshot& snapshot, TransactionId transaction, Bytes row) {
    return write_found(thread, index_->find(key), VersionWrite::insert_of(snapshot, transaction, row));
  }
  /// As insert, but kNotFound instead of kAlreadyExists. With `projection`, `row` is a row of that projection, and the
  /// other fields are those of the version that this one replaces: exactly the one that is claimed.
  WriteOutcome update(ThreadContext& thread, Key key, const Snapshot& snapshot, TransactionId transaction, Bytes row,
                      const Projection* projection = nullptr) {
    return write_found(thread, index_->find(key), VersionWrite::update_of(snapshot, transaction, {row, projection}));
  }
  /// As update(), with the reserve for removes (R6): kOverloaded instead of kNoSpace.
  WriteOutcome remove(ThreadContext& thread, Key key, const Snapshot& snapshot, TransactionId transaction) {
    return write_found(thread, index_->find(key), VersionWrite::remove_of(snapshot, transaction));
  }
  /// Takes the transaction's version off; what is not there counts as reverted. Needs no memory. kConflict if a newer
  /// version stands upon it, which means the transaction had been completed.
  WriteOutcome revert(ThreadContext& thread, Key key, TransactionId transaction) {
    return revert_found(thread, index_->find(key), transaction);
  }

  // Non-transactional tables (R21); kWrongTableKind on others.

  /// The newest version.
  ReadOutcome plain_get(ThreadContext& thread, Key key) { return plain_get_found(thread, index_->find(key)); }
  /// Writes the row if the newest version is exactly `expected` (0: if the record is absent), else kConflict with the
  /// newest. `reserve`: whose room it takes (R6). With `projection`, `row` is a row of that projection, and the
  /// other fields are those of the expected version (kNotFound if that is 0).
  WriteOutcome plain_put(ThreadContext& thread, Key key, Version expected, Bytes row, Reserve reserve = Reserve::kWrite,
                         const Projection* projection = nullptr) {
    return plain_put_found(thread, index_->find(key), expected, {row, projection}, reserve);
  }
  /// Removes the record if its version is exactly `expected`. Needs no memory.
  WriteOutcome plain_remove(ThreadContext& thread, Key key, Version expected) {
    return plain_remove_found(thread, index_->find(key), expected);
  }

  // The same of a key that HashIndex::find() or confirm() has found or not found, in this guard.

  ReadOutcome get_found(ThreadContext& thread, const Cursor& found, const Snapshot& snapshot);
  /// `prepared`: what prepare() gave for this write, or null.
  WriteOutcome write_found(ThreadContext& thread, const Cursor& found, const VersionWrite& request,
                           Entry* prepared = nullptr);
  WriteOutcome revert_found(ThreadContext& thread, const Cursor& found, TransactionId transaction);
  ReadOutcome plain_get_found(ThreadContext& thread, const Cursor& found);
  WriteOutcome plain_put_found(ThreadContext& thread, const Cursor& found, Version expected, const NewRow& row,
                               Reserve reserve);
  WriteOutcome plain_remove_found(ThreadContext& thread, const Cursor& found, Version expected);

  /// Appends the entry of a write that will probably succeed, so that a group's entries are written one after another,
  /// before the first of the atomic operations that wait for what was written. Null: the write is unlikely to succeed,
  /// or needs more than this to tell. The caller hands the entry to write_found() in this guard, whatever has happened
  /// meanwhile. Until then it is what a scan takes for the version of an unfinished transaction.
  Entry* prepare(ThreadContext& thread, const Cursor& found, const VersionWrite& request);

  // For scans, the compactor, statistics.

  PageList& pages() { return log_.pages(); }
  const PageList& pages() const { return log_.pages(); }
  TableLog& log() { return log_; }
  HashIndex& index() { return *index_; }
  size_t max_row_bytes() const;
  /// Keys in the index: records, and removed ones whose tombstone is not collected yet.
  size_t keys() const;
  TableCounters counters() const;
  /// A scan begins. The pages of tables that are scanned become column pages when they are cold. Any thread.
  void count_scan() {
    // Relaxed: a statistic.
    scans_.fetch_add(1, std::memory_order_relaxed);
  }
  uint64_t scans() const { return scans_.load(std::memory_order_relaxed); }

  /// Every version up to this is seen by every open and every later snapshot: nobody follows what one of them leads to
  /// (chain.h). 0 until the compactor has set it.
  Version horizon() const {
    // Relaxed: between its rise and what is done by it lies an epoch; a stale one only means that more is followed.
    return Version(horizon_.load(std::memory_order_relaxed));
  }
  /// By the compactor alone, an epoch before it drops anything. Never falls.
  void raise_horizon(Version horizon) {
    // Relaxed: as in horizon(); one thread writes it.
    horizon_.store(std::max(this->horizon(), horizon).value, std::memory_order_relaxed);
  }

  /// Walks index, chains and pages: every key's chain is sorted, starts with an open version, leads through live
  /// entries of listed pages only, and every live entry of a listed page that was not superseded up to the horizon is
  /// in its key's chain exactly once; and what TableLog::check_invariants() looks at. "" or what is wrong. Nobody else
  /// uses the table meanwhile, and no compaction is under way.
  std::string check_invariants();

 private:
  struct alignas(64) Counters : TableNumbers<statistics::Counter> {};
  /// kOk, or what is wrong with the request itself.
  StatusCode check(const VersionWrite& request) const;
  Entry* append(ThreadContext& thread, const VersionWrite& request, Key key, const Chain::Newest& newest, Bytes before);
  bool stands_below(const Chain::Newest& newest, Version version) const;
  static void kill_lost(Counters& counters, Entry* entry);

  Table(const TableOptions& options, const TableResources& resources, std::unique_ptr<HashIndex> index);

  // Constant after construction.
  const TableOptions options_;  // the schema outlives the pages: they refer to it
  const TableResources resources_;
  const std::unique_ptr<HashIndex> index_;
  const std::unique_ptr<Counters[]> counters_;  // each written by one thread, read by counters()
  TableLog log_;
  // Written by the compactor, read on the way behind a newest version.
  Env::Atomic<uint64_t> horizon_{0};
  // Written when a scan begins, read by the compactor.
  Env::Atomic<uint64_t> scans_{0};
};

}  // namespace loam::storage
