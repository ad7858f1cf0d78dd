// Commit and abort of one transaction as a state machine without I/O [protocol R1, R2, R4].
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

namespace loam::client {

/// Operations of one Write message: a node's batch stays short, a message well below the transport's limit.
inline constexpr size_t kWriteBatchOperations = 1'024;
inline constexpr size_t kWriteBatchBytes = 1 << 20;
/// Batches of one commit that are under way at a node. The answers of all of them fit the node's window of answers
/// (wire::kNodeReplyWindow), so that a lost connection costs no session (R3), and a commit of any size takes a quarter
/// of the channel's backlog.
inline constexpr uint32_t kBatchesInFlight = 16;
/// A step that may be repeated safely (a revert, a refused completion) is tried so often before the session is given
/// up; the wait before try n is kFirstRepeatNs * 2^n: five seconds in all.
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
  std::variant<wire::Write, wire::Revert, wire::Complete, IndexWork> message;
};

/// One transaction from commit() to its end.
///
///     every write, all answers in → index changes → complete as committed → *answered*, over
///          │                         │                  │ refused (R9)
///          └──────── any failed ─────┴──────────────────┴─→ undo index changes, then records → *answered* →
///                                                           complete as aborted → over
///     a write's answer lost, or the session ended: the machine gives up, recovery finishes (R2)
///     the answer to the completion lost: the machine gives up, and the commit log tells the outcome (R4)
///
/// The driver calls start() once, then next() until it gives none. It reports for every write, revert and completion
/// exactly one of on_answer, on_completed, on_refused, on_lost, and for IndexWork on_indexed; and again next() after
/// each report.
///
/// Owner: the driver, until finished(). One thread. Bytes of messages point into the machine. Allocates; no I/O, no
/// clock, no randomness.
///
/// Invariants: (1) the transaction is completed as committed only after every write was answered kOk and every index
/// change was made; (2) no revert is sent before every write sent has an answer, and the index changes are undone if
/// any may have been made (R27); (3) it is completed as aborted only when nothing of it remains, and never while a
/// completion as committed may have been accepted; (4) result() is set exactly once; ok only after the commit manager's
/// answer; (5) at most kBatchesInFlight batches are under way at each node.
class CommitMachine {
 public:
  enum class Phase : uint8_t { kIdle, kWrite, kIndex, kUndoIndex, kUndo, kComplete, kOver };

  /// What the machine works for. `shards` lies in a catalog that may change: owners are looked up when needed.
  struct Context {
    TransactionId id;
    std::shared_ptr<const Snapshot> snapshot;
    std::shared_ptr<const wire::Catalog> catalog;
    Version seen_by_all{};  ///< of its begin (R27)
    Version durable{};      ///< of its begin (R11)
  };

  CommitMachine(Context context, WriteBuffer writes, std::vector<wire::IndexChange> index_changes = {});
  CommitMachine(const CommitMachine&) = delete;
  CommitMachine& operator=(const CommitMachine&) = delete;

  void start();
  /// The next message to send; false if there is none now.
  bool next(Outgoing& out);

  /// A storage node's answer: results in the order of the request's operations. `detail` explains the first failure
  /// that is more than its code.
  void on_answer(uint32_t token, std::span<const wire::WriteResult> results, std::string_view detail);
  /// The commit manager's answer to a completion. `refused`: the transaction cannot be committed, and stays open until
  /// it is completed as aborted (R9).
  void on_completed(bool refused);
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
  /// The commit manager has accepted it as committed.
  bool committed() const { return result_ && result_->ok(); }
  /// Something has failed: the transaction will not be committed.
  bool failed() const { return !failure_.ok(); }
  /// The transaction was left to recovery: this session must not go on (R2).
  bool session_given_up() const { return given_up_; }
  /// What is known of a transaction that was left to recovery before result() was known: then result() is only what
  /// would have to be said if nobody could be asked.
  enum class Doubt : uint8_t {
    kNone,          ///< result() stands
    kNotCommitted,  ///< it was never completed as committed: recovery rolls it back
    kUnknown,       ///< the commit manager may have accepted it as committed: the commit log tells
  };
  Doubt doubt() const { return doubt_; }
  /// The failure was a lost race.
  bool conflicted() const { return failure_ == StatusCode::kConflict; }

 private:
  enum class WriteState : uint8_t { kUnsent, kSent, kApplied, kFailed };
  /// One record's write; ordered by node, so that a batch is a range.
  struct Item {
    NodeId node;
    wire::RecordId record;
    const WriteBuffer::Write* write = nullptr;
    WriteState state = WriteState::kUnsent;
  };
  struct Batch {
    NodeId node;
    uint32_t begin = 0, end = 0;  // of items_
    uint32_t repeats = 0;         // of its revert
  };

  // Steps, in the order of the picture above.
  void make_batches();
  void change_indexes();
  void begin_undo();
  void undo_indexes(uint64_t delay_ns);
  void revert_records();
  void complete(bool committed);
  void send_complete(uint64_t delay_ns);

  /// Writes or reverts, as the phase says: the first kBatchesInFlight batches of each node.
  void send_first_batches();
  /// The batch, or, if nothing of it is to be sent, one that would follow it.
  void send_batch(uint32_t batch);
  void send_write(uint32_t batch);
  /// False: the batch has nothing to revert.
  bool send_revert(uint32_t batch, uint64_t delay_ns);
  /// A batch is done: the next one of its node takes its place.
  void batch_done(uint32_t batch);

  void after_write(uint32_t batch, std::span<const wire::WriteResult> results, std::string_view detail);
  void after_revert(uint32_t batch, std::span<const wire::WriteResult> results);
  /// No batch is under way.
  void batches_done();

  void fail(Status status);
  void fail_write(const Item& item, StatusCode code, std::string_view detail);
  /// Leaves the rest to recovery. `status` is the application's answer unless it has one.
  void give_up(Status status);
  void repeat_or_give_up(uint32_t& repeats, const Status& status, const std::function<void(uint64_t delay_ns)>& again);
  Outgoing& push(NodeId node, uint32_t token);
  std::string describe_id() const;

  const Context context_;
  const WriteBuffer writes_;
  const std::vector<wire::IndexChange> index_changes_;
  std::vector<Item> items_;
  std::vector<Batch> batches_;

  Phase phase_ = Phase::kIdle;
  std::deque<Outgoing> outgoing_;
  uint32_t open_ = 0;     // batches sent and not yet answered
  uint32_t repeats_ = 0;  // of the present single-message step
  bool indexed_ = false;  // index changes may have been made
  bool commits_ = false;  // what the completion says
  bool asked_ = false;    // a completion as committed may be under way, and accepted
  bool given_up_ = false;
  Doubt doubt_ = Doubt::kNone;
  Status failure_;
  std::optional<Status> result_;
};

}  // namespace loam::client
