// Commit and abort of one transaction as a state machine without I/O [protocol R1, R2, R4, R5].
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "client-lib/src/core/write_buffer.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/catalog.h"
#include "common/wire/index_change.h"
#include "common/wire/manager.h"
#include "common/wire/storage.h"
#include "common/wire/undo_record.h"

namespace loam::client {

/// Operations of one Write message: a node's batch stays short, a message well below the transport's limit.
inline constexpr size_t kWriteBatchOperations = 1'024;
inline constexpr size_t kWriteBatchBytes = 1 << 20;
/// A step that may be repeated safely (a revert, the swap of R4, a refused completion) is tried so often before the
/// session is given up; the wait before try n is kFirstRepeatNs * 2^n: five seconds in all.
inline constexpr uint32_t kMaxRepeats = 9;
inline constexpr uint64_t kFirstRepeatNs = 10'000'000;

/// The transaction's index changes are to be made, or undone: a walk through trees, which the driver makes. All or
/// some of them may have been made before.
struct IndexWork {
  bool undo = false;
};

/// A message that a machine wants sent.
struct Outgoing {
  uint32_t token = 0;     ///< comes back with the answer
  NodeId node;            ///< NodeId(0): the commit manager, or several
  uint64_t delay_ns = 0;  ///< send it so much later
  std::variant<wire::PlainWrite, wire::Write, wire::Revert, wire::Complete, wire::Cleared, IndexWork> message;
};

/// One transaction from commit() to its end.
///
///     undo record → every write, all answers in → indexes → mark → complete → *answered* → clear → tell the CM → over
///          │                 │                       │        │ refused
///          │                 └──── any failed ───────┴────────┴─→ undo indexes, then records → complete as aborted →
///          └─ refused ────────────────────────────────────────────────────────────────┘   clear → tell the CM → over
///     (answered when all is undone)
///     a write's answer lost, or a session fenced: the machine gives up, recovery finishes (R2)
///     the mark's answer lost: swap pending → aborted by exact version; the swap's result decides (R4)
///
/// The driver calls start() once, then next() until it gives none, and reports for every message but wire::Cleared
/// (which has no answer) exactly one of on_answer, on_refused, on_lost, and for IndexWork on_indexed; and again next()
/// after each report.
///
/// Owner: the driver, until finished(). One thread. Bytes of messages point into the machine. Allocates; no I/O, no
/// clock, no randomness.
///
/// Invariants: (1) no mark is sent before every write was answered kOk and every index change was made; (2) no revert
/// is sent before every write sent has an answer, and the index changes are undone if any may have been made (R27); (3)
/// the id is completed as committed only after the mark is known to stand, as aborted only when nothing of it remains
/// and the mark can no longer be made; (4) result() is set exactly once; ok only after the CM's acknowledgement.
class CommitMachine {
 public:
  enum class Phase : uint8_t {
    kIdle,
    kUndoRecord,
    kWrite,
    kIndex,
    kMark,
    kResolve,
    kUndoIndex,
    kUndo,
    kComplete,
    kClear,
    kOver
  };

  /// What the machine works for. `shards` lies in a catalog that may change: owners are looked up when needed.
  struct Context {
    TransactionId id;
    SessionId session;
    std::shared_ptr<const Snapshot> snapshot;
    std::shared_ptr<const wire::Catalog> catalog;
    Version seen_by_all{};  ///< of its begin (R27)
  };

  CommitMachine(Context context, WriteBuffer writes, std::vector<wire::IndexChange> index_changes = {});
  CommitMachine(const CommitMachine&) = delete;
  CommitMachine& operator=(const CommitMachine&) = delete;

  void start();
  /// The next message to send; false if there is none now.
  bool next(Outgoing& out);

  /// The server's answer: results in the order of the request's operations (none for a Complete). `detail` explains the
  /// first failure that is more than its code.
  void on_answer(uint32_t token, std::span<const wire::WriteResult> results, std::string_view detail);
  /// The request has no effect and never will: it was not sent, or was answered with an error as a whole.
  void on_refused(uint32_t token, const Status& status);
  /// The request was sent and its answer will not come: it may have had its effect, or still have it.
  void on_lost(uint32_t token, const Status& status);
  /// kUnknownOutcome: some of it may still happen. Any other error: what was not made will never be.
  void on_indexed(const Status& status);
  /// The session has ended, nothing can be sent any more: the rest is recovery's. At any time instead of another event.
  void abandon(const Status& status);

  const Context& context() const { return context_; }
  const std::vector<wire::IndexChange>& index_changes() const { return index_changes_; }

  /// For the application. Nothing until it is known.
  const std::optional<Status>& result() const { return result_; }
  /// No event is expected any more; the machine may be destroyed.
  bool finished() const { return phase_ == Phase::kOver && outgoing_.empty(); }
  Phase phase() const { return phase_; }
  /// The mark stands.
  bool committed() const { return committed_; }
  /// The undo record is gone.
  bool cleared() const { return cleared_; }
  /// Something has failed: the transaction will not be committed, unless its mark turns out to stand.
  bool failed() const { return !failure_.ok(); }
  /// The transaction was left to recovery: this session must not go on (R2).
  bool session_given_up() const { return given_up_; }
  /// What is known of a transaction that was left to recovery before result() was known: then result() is only what
  /// would have to be said if nobody could be asked.
  enum class Doubt : uint8_t {
    kNone,          ///< result() stands
    kNotCommitted,  ///< the mark was never sent, or cannot stand: recovery rolls it back
    kUnknown,       ///< the mark may stand
    kCommitted,     ///< the mark stands: recovery completes it
  };
  Doubt doubt() const { return doubt_; }
  /// A lost answer was resolved by R4.
  bool resolved() const { return resolved_; }
  /// The failure was a lost race.
  bool conflicted() const { return failure_ == StatusCode::kConflict; }

 private:
  enum class WriteState : uint8_t { kUnsent, kSent, kApplied, kDoubtful, kFailed };
  /// One record's write; ordered by node, so that a batch is a range.
  struct Item {
    NodeId node;
    wire::RecordId record;
    const WriteBuffer::Write* write = nullptr;
    WriteState state = WriteState::kUnsent;
  };
  struct Batch {
    uint32_t begin = 0, end = 0;  // of items_
    uint32_t repeats = 0;         // of its revert
    bool open = false;            // sent, not yet answered
  };

  // Steps, in the order of the picture above.
  void send_undo_record();
  void send_writes();
  void change_indexes();
  void send_mark();
  void send_resolve();
  void begin_undo();
  void undo_indexes(uint64_t delay_ns);
  void undo_records();
  void send_revert(uint32_t batch, uint64_t delay_ns);
  void complete(bool committed);
  void send_complete(uint64_t delay_ns);
  void clear();
  void tell_cleared();

  void after_undo_record(const wire::WriteResult& result, std::string_view detail);
  void after_write(Batch& batch, std::span<const wire::WriteResult> results, std::string_view detail);
  void after_mark(const wire::WriteResult& result, std::string_view detail);
  void after_resolve(const wire::WriteResult& result, std::string_view detail);
  void after_revert(uint32_t token, std::span<const wire::WriteResult> results);
  void after_clear(const wire::WriteResult& result);
  void writes_answered();

  void fail(Status status);
  void fail_write(const Item& item, StatusCode code, std::string_view detail);
  /// Leaves the rest to recovery. `status` is the application's answer unless it has one.
  void give_up(Status status);
  void repeat_or_give_up(uint32_t& repeats, const Status& status, const std::function<void(uint64_t delay_ns)>& again);
  Outgoing& push(NodeId node, uint32_t token);
  /// A write of the undo record as far as it is known. None of them uses the room that is kept for undo: the insert has
  /// no right to it, a mark and a removal need no room.
  wire::PlainWrite::Operation& push_undo_write(wire::WriteKind kind);
  void push_mark(wire::UndoState state);
  std::string describe_id() const;

  const Context context_;
  const WriteBuffer writes_;
  const std::vector<wire::IndexChange> index_changes_;
  NodeId undo_node_;
  Buffer undo_row_;
  std::vector<Item> items_;
  std::vector<Batch> batches_;

  Phase phase_ = Phase::kIdle;
  std::deque<Outgoing> outgoing_;
  Version undo_version_;       // of the undo record, 0 while there is none that we know of
  bool undo_unknown_ = false;  // the undo record's insert was lost: there may be one
  uint32_t open_ = 0;          // messages sent and not yet answered
  uint32_t repeats_ = 0;       // of the present single-message step
  bool indexed_ = false;       // index changes may have been made
  bool committed_ = false;     // the mark stands
  bool cleared_ = false;
  bool given_up_ = false;
  Doubt doubt_ = Doubt::kNone;
  bool resolved_ = false;
  Status failure_;
  std::optional<Status> result_;
};

}  // namespace loam::client
