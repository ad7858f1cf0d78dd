// The end of one transaction whose client is dead, as a state machine without I/O
// [Thesis 3.2.2; R2, R5, R8, R9, R11, R27, R30; docs/decisions/0008-death-and-recovery.md].
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "commit-manager/src/recovery/recoverer.h"
#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/catalog.h"
#include "common/wire/storage.h"
#include "common/wire/undo_record.h"

namespace loam::commit {

/// Records of one Revert message: a node's batch stays short.
inline constexpr size_t kRevertBatchRecords = 1'024;

/// What the transaction did to indexes is to be undone: a walk through trees, which the driver makes. The changes lie
/// in the machine.
struct IndexUndo {
  TransactionId transaction;
  std::span<const wire::IndexChange> changes;
};

/// A message that a recovery machine wants sent.
struct RecoveryMessage {
  using Body = std::variant<wire::PlainRead, wire::PlainWrite, wire::Revert, IndexUndo>;
  uint32_t token = 0;  ///< comes back with the answer
  NodeId node;         ///< NodeId(0): no node owns the record at present, or it goes to several
  Body message;
};

/// One attempt to end one transaction. Its session is fenced at every node, so that its client changes nothing any
/// more.
///
///     kRead ── pending ──▶ kSwap (to aborted, exact version) ──▶ kUndoIndexes, kRevert ──▶ kReport ──▶ kClear ──▶
///     over: kDone
///       │ ▲                  │ conflict: read again                ▲            ▲  acknowledged()
///       │ └──────────────────┴────────────────┐                    │            │
///       ├─ none (kOpen) ──▶ kInsert (aborted) ┘ exists             │            │
///       │                      └───────────────────────────────────┤            │
///       ├─ aborted ────────────────────────────────────────────────┘            │
///       ├─ committed ───────────────────────────────────────────────────────────┘
///       ├─ none (kFound, kUncleared) ──▶ over: kDone
///       ├─ any (kUncleared) ──▶ kClear
///       └─ malformed ──▶ over: kUnreadable; if the operator has accepted that: ──▶ kReport (aborted, nothing reverted)
///     a message that is refused or has no answer: over: kPostponed, as soon as no answer is awaited any more (reverts
///     at other nodes are completed first, R9, also where an index cannot be reached, R27); the next attempt is a new
///     machine for rest(). kFenced: over: kFenced
///
/// The driver calls start() once, then next() until it gives none, and reports for every message exactly one of
/// on_read, on_write, on_revert, on_index_undone, on_failure; and again next() after each report. When reporting()
/// turns true it reports committed() to the commit manager and calls acknowledged() when that has kept it.
///
/// Owner: the driver, until over(). One thread. Bytes of messages point into the machine. Allocates; no I/O, no clock,
/// no randomness.
///
/// Invariants: (1) no revert is sent before the undo record is known to say *aborted*; a record that says so never says
/// anything else; (2) committed() is the outcome in the undo record when it was final: *committed* and *aborted* are
/// final, and *none* is made *aborted*; (3) it is reported only after every revert was answered; (4) the undo record is
/// removed only after acknowledged(), and by its exact version. So two machines for one id, at one time or one after
/// another, tell the same outcome. One exception: a machine that reads after the other has removed the undo record
/// reads none, and tells *aborted* about an id whose outcome the commit manager knows already, and keeps. One that was
/// started because the undo record had been found (kFound) says nothing then; and a commit manager stops one recoverer
/// before it starts the next. (5) Every message may be repeated, or arrive late, without harm: ids are never reused,
/// reverts of absent versions succeed, the rest is by exact version.
class RecoveryMachine {
 public:
  enum class End : uint8_t {
    kNone,        ///< not over
    kDone,        ///< nothing of the transaction is left
    kPostponed,   ///< try rest() again later: status() says why, blocked_by() where
    kUnreadable,  ///< its undo record is malformed: only an operator can end it
    kFenced,      ///< the recoverer itself is fenced
  };

  /// `catalog` tells who owns what. With `unreadable_is_lost` a malformed undo record counts as one that was lost.
  RecoveryMachine(RecoveryTask task, std::shared_ptr<const wire::Catalog> catalog, bool unreadable_is_lost = false);
  RecoveryMachine(const RecoveryMachine&) = delete;
  RecoveryMachine& operator=(const RecoveryMachine&) = delete;

  void start();
  /// The next message to send; false if there is none now.
  bool next(RecoveryMessage& out);

  void on_read(std::span<const wire::ReadResult> results);
  void on_write(std::span<const wire::WriteResult> results);
  void on_revert(uint32_t token, std::span<const wire::WriteResult> results);
  /// All of it, or why not all.
  void on_index_undone(const Status& status);
  /// Refused as a whole, or never answered: which of the two makes no difference here.
  void on_failure(uint32_t token, const Status& status);
  /// The commit manager has kept the outcome.
  void acknowledged();

  bool reporting() const { return phase_ == Phase::kReport; }
  bool committed() const { return committed_; }
  /// No event is expected any more.
  bool over() const { return end_ != End::kNone && open_ == 0; }
  End end() const { return end_; }

  const Status& status() const { return status_; }
  /// The node whose refusal or silence ended the attempt; NodeId(0): no node owns a record of the transaction.
  NodeId blocked_by() const { return blocked_by_; }
  /// The task of the next attempt after kPostponed.
  RecoveryTask rest() const { return task_; }
  TransactionId id() const { return task_.id; }
  /// Records whose reverts were answered.
  size_t reverted() const { return reverted_; }

 private:
  enum class Phase : uint8_t { kIdle, kRead, kInsert, kSwap, kUndoIndexes, kRevert, kReport, kClear, kOver };
  struct Batch {
    NodeId node;
    std::vector<wire::RecordId> records;
  };

  void read();
  void insert();
  void swap();
  void revert();
  void revert_records();
  void reverted_all();
  void report(bool committed);
  void clear();

  void after_read(const wire::ReadResult& result);
  void after_none();
  void after_decision(const wire::WriteResult& result);
  void after_clear(const wire::WriteResult& result);

  void finish(End end, Status status = ok_status());
  /// The attempt ends when the last answer is in.
  void postpone(NodeId node, Status status);
  void push(NodeId node, uint32_t token, RecoveryMessage::Body message);
  wire::PlainWrite::Operation& push_write(wire::WriteKind kind);
  std::string describe() const;

  RecoveryTask task_;
  const std::shared_ptr<const wire::Catalog> catalog_;
  const bool unreadable_is_lost_;
  const wire::RecordId undo_id_;
  const NodeId undo_node_;

  Phase phase_ = Phase::kIdle;
  End end_ = End::kNone;
  Status status_;
  NodeId blocked_by_;
  std::deque<RecoveryMessage> outgoing_;
  uint32_t open_ = 0;  // messages given to the driver and not yet answered
  Buffer undo_row_;
  Version undo_version_;
  std::vector<wire::RecordId> records_;
  std::vector<wire::IndexChange> index_changes_;
  Status indexes_undone_;  // or why not all of them
  std::vector<Batch> batches_;
  size_t reverted_ = 0;
  bool committed_ = false;
};

}  // namespace loam::commit
