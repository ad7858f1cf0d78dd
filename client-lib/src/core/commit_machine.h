// CommitMachine: commit and abort of one transaction as a state machine without I/O (R1, commit order; R2, abort
// order; R4, outcomes from the commit log).
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

/// Most operations and bytes of one Write message. They keep a storage node's batch short, and the message well below
/// the transport's limit.
inline constexpr size_t kWriteBatchOperations = 1'024;
inline constexpr size_t kWriteBatchBytes = 1 << 20;
/// Most batches of one commit that are under way at one storage node. Their replies fit into the node's reply window
/// (wire::kNodeReplyWindow), so that a lost connection does not cost the session (R3, idempotent requests within a
/// session). A commit of any size takes at most a quarter of the channel's backlog.
inline constexpr uint32_t kBatchesInFlight = 16;
/// Most retries of a step that may be repeated safely (a revert, a refused completion) before the machine gives the
/// session up. The wait before retry n is kInitialStepRetryNs * 2^n, five seconds in all.
inline constexpr uint32_t kMaxStepRetries = 9;
inline constexpr uint64_t kInitialStepRetryNs = 10'000'000;

/// Asks the driver to make or undo the transaction's index changes. Some or all of them may have been made before.
struct IndexWork {
  bool undo = false;
};

/// A message that the driver is to send.
struct OutgoingMessage {
  uint32_t token = 0;     ///< returned with the reply
  NodeId node;            ///< NodeId(0): the commit manager, or none (IndexWork)
  uint64_t delay_ns = 0;  ///< wait before it is sent
  std::variant<wire::Write, wire::Revert, wire::Complete, IndexWork> message;
};

/// Decides the steps of one transaction from commit() to its end.
///
///     all writes, all replies in → index changes  → complete as committed → *answered*, over
///          │                         │                  │ refused (R9)
///          └──────── one failed ─────┴──────────────────┴─→ undo index changes, then records → *answered* →
///                                                           complete as aborted → over
///     a write's reply lost, or the session ended: the machine gives up, recovery finishes (R2)
///     the reply to the completion lost: the machine gives up, the commit log has the outcome (R4)
///
/// The driver calls start() once, and then next() until there is no message. It reports exactly one of on_reply(),
/// on_completed(), on_refused() and on_lost() for every write, revert and completion, and on_index_result() for an
/// IndexWork. After each report it calls next() again.
///
/// Owner: the driver, until finished(). One thread. Messages refer to bytes of the machine. The machine allocates; it
/// has no I/O, no clock, no randomness.
///
/// Invariants:
///   1. The transaction is completed as committed only after every write was answered kOk and every index change
///      was made.
///   2. No revert is sent before every sent write has its reply, and before the index changes are undone, if any
///      may have been made (R27, index entries).
///   3. The transaction is completed as aborted only when no write of it remains, and never while a completion as
///      committed may have been accepted.
///   4. result() is set exactly once; ok only after the commit manager's reply.
///   5. At most kBatchesInFlight batches are under way at each storage node.
class CommitMachine {
 public:
  /// The states: kIdle before start(), then the steps of the picture, kDone at the end.
  enum class Phase : uint8_t { kIdle, kWrite, kIndex, kUndoIndex, kUndo, kComplete, kDone };

  /// The transaction that the machine commits. The owners of records come from this version of the catalog.
  struct Context {
    TransactionId id;
    std::shared_ptr<const Snapshot> snapshot;
    std::shared_ptr<const wire::Catalog> catalog;
    Version seen_by_all{};  ///< from the reply to its begin (R27)
    Version durable{};      ///< from the reply to its begin (R11, commit log and restart of the commit manager)
  };

  CommitMachine(Context context, WriteBuffer writes, std::vector<wire::IndexChange> index_changes = {});
  CommitMachine(const CommitMachine&) = delete;
  CommitMachine& operator=(const CommitMachine&) = delete;

  /// Starts the commit. Called once.
  void start();
  /// Moves out the next message to send. False: there is none now.
  bool next(OutgoingMessage& out);

  /// A storage node has answered, with results in the order of the request's operations. `detail` explains the first
  /// failure, if its code alone does not.
  void on_reply(uint32_t token, std::span<const wire::WriteResult> results, std::string_view detail);
  /// The commit manager has answered a completion. `refused`: the transaction cannot be committed, and stays open
  /// until it is completed as aborted (R9, leases of storage nodes).
  void on_completed(bool refused);
  /// The request has had no effect and never will: it was not sent, or an error answered it as a whole.
  void on_refused(uint32_t token, const Status& status);
  /// The request was sent and its reply will not come. It may have had its effect, or may have it later.
  void on_lost(uint32_t token, const Status& status);
  /// The driver has executed an IndexWork. kUnknownOutcome: some changes may still take effect. After any other
  /// error, no further change takes effect.
  void on_index_result(const Status& status);
  /// The session has ended, so that no message can be sent any more. Recovery does the rest. Allowed at any time,
  /// instead of another report.
  void abandon(const Status& status);

  const Context& context() const { return context_; }
  const std::vector<wire::IndexChange>& index_changes() const { return index_changes_; }

  /// The result for the application, once it is known.
  const std::optional<Status>& result() const { return result_; }
  /// True if the machine expects no report any more and may be destroyed.
  bool finished() const { return phase_ == Phase::kDone && outgoing_.empty(); }
  Phase phase() const { return phase_; }
  /// True if the commit manager has accepted the commit.
  bool committed() const { return result_ && result_->ok(); }
  /// True if a step has failed, so that the transaction will not be committed.
  bool failed() const { return !failure_.ok(); }
  /// True if the machine has left the transaction to recovery. The driver must then give the session up (R2, abort
  /// order).
  bool session_given_up() const { return given_up_; }
  /// The state of knowledge about a transaction that was left to recovery before it had a result. result() is then
  /// provisional: it applies only if the commit log cannot be asked.
  enum class Doubt : uint8_t {
    kNone,          ///< result() is final
    kNotCommitted,  ///< no completion as committed was sent: recovery rolls the transaction back
    kUnknown,       ///< the commit manager may have accepted the commit: the commit log has the outcome
  };
  Doubt doubt() const { return doubt_; }
  /// True if the transaction failed because it lost against a concurrent one.
  bool conflicted() const { return failure_ == StatusCode::kConflict; }

 private:
  enum class WriteState : uint8_t { kUnsent, kSent, kApplied, kFailed };
  /// The write of one record. Items are ordered by storage node, so that a batch is a range of them.
  struct Item {
    NodeId node;
    wire::RecordId record;
    const WriteBuffer::Write* write = nullptr;
    WriteState state = WriteState::kUnsent;
  };
  struct Batch {
    NodeId node;
    uint32_t begin = 0, end = 0;  // range of items_
    uint32_t retries = 0;         // of its revert
  };

  // Steps, in the order of the picture above.
  void make_batches();
  void change_indexes();
  void begin_undo();
  void undo_indexes(uint64_t delay_ns);
  void revert_records();
  void complete(bool committed);
  void send_complete(uint64_t delay_ns);

  /// Sends the first kBatchesInFlight batches of each storage node, as writes or reverts, depending on the phase.
  void send_first_batches();
  /// Sends the batch, or the next batch of its chain if it has nothing to revert. Batch b + kBatchesInFlight of a
  /// node follows batch b.
  void send_batch(uint32_t batch);
  void send_write(uint32_t batch);
  /// Sends a revert of the batch's applied writes. False: there are none.
  bool send_revert(uint32_t batch, uint64_t delay_ns);
  /// Sends the batch that follows a finished one.
  void batch_done(uint32_t batch);

  void after_write(uint32_t batch, std::span<const wire::WriteResult> results, std::string_view detail);
  void after_revert(uint32_t batch, std::span<const wire::WriteResult> results);
  /// Called when no batch is under way any more: ends the phase.
  void batches_done();

  void fail(Status status);
  void fail_write(const Item& item, StatusCode code, std::string_view detail);
  /// Leaves the rest to recovery. `status` is the result for the application, unless it has one.
  void give_up(Status status);
  void retry_or_give_up(uint32_t& retries, const Status& status, const std::function<void(uint64_t delay_ns)>& again);
  OutgoingMessage& push(NodeId node, uint32_t token);
  std::string describe_id() const;

  const Context context_;
  const WriteBuffer writes_;
  const std::vector<wire::IndexChange> index_changes_;
  std::vector<Item> items_;
  std::vector<Batch> batches_;

  Phase phase_ = Phase::kIdle;
  std::deque<OutgoingMessage> outgoing_;
  uint32_t batches_in_flight_ = 0;       // batches sent and not yet answered
  uint32_t retries_ = 0;                 // of the current step with a single message
  bool index_changes_started_ = false;   // some index changes may have been made
  bool completes_as_committed_ = false;  // outcome that the completion tells the commit manager
  bool commit_requested_ = false;        // a completion as committed may be under way or accepted
  bool given_up_ = false;
  Doubt doubt_ = Doubt::kNone;
  Status failure_;
  std::optional<Status> result_;
};

}  // namespace loam::client
