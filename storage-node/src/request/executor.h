// Executes the requests of one batch, that is, the messages of one network frame.
//
//   decode      each message becomes a request with point operations, or is answered at once
//   execute     the point operations of all requests run together; storage-node/src/version/batch.h overlaps their
//               cache misses across requests
//   reply       each request is answered, in the order of the messages
//
// The executor does no I/O: the driver passes messages in as bytes, and replies go out through Peer.
#pragma once

#include <concepts>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/wire/storage.h"
#include "storage-node/src/request/peer.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/request/session_table.h"
#include "storage-node/src/version/batch.h"

namespace loam::storage {

/// Upper bound on the bytes of rows in one reply. Reads beyond it get kOverloaded, and the client sends them again. The
/// bound is well below the transport's largest message.
inline constexpr size_t kMaxReplyRowBytes = size_t{4} << 20;

/// Upper bound on the bytes of one reply to kIntents.
inline constexpr size_t kMaxIntentPageBytes = size_t{256} << 10;
/// Upper bound on the blocks of intents that the executor reads for one reply to kIntents.
inline constexpr size_t kMaxIntentPageBlocks = 1'024;

/// Counters of one executor. The thread of the executor writes them; any thread may read them.
using ExecutorCounters = ExecutorNumbers<statistics::Counter>;

/// Executes the requests of the clients of one network thread.
///
/// Role: request handling. Owner and threads: one network thread. The executor keeps its buffers between batches, so
/// after warm-up a batch of point operations allocates nothing.
///
/// Intents (R5, intents before answers). The executor appends the intents of an operation to the session's list when it
/// decodes the operation: before the batch is executed, and so before the write can be read or answered. An operation
/// whose intents find no room is not executed (kOverloaded). After the batch, and before an answer is sent, the
/// executor removes the intents of failed operations. It does all of that inside the session's batch lock, and every
/// other reader of the list takes that lock. So no reader sees an intent of a write that may still fail.
///
/// Errors. If bytes are no message, the executor answers the requests before them and closes the peer with kMalformed.
/// A request that is refused as a whole gets kError. Every other error is a code per operation. kFenced and
/// kUnknownOutcome (a repetition beyond the reply window; R3, idempotent requests) close the peer too, because its
/// session is over.
class Executor {
 public:
  Executor(Registry& registry, SessionTable& sessions, ScanHandler& scans, ThreadContext& thread,
           const ExecuteOptions& execution = {});

  /// Executes and answers the messages of one frame. The bytes of the messages stay valid until run() returns.
  void run(Peer& peer, std::span<const Bytes> messages);

  const ExecutorCounters& counters() const { return counters_; }

 private:
  /// RequestItem::operation of an operation that is answered without being executed.
  static constexpr size_t kNotRun = SIZE_MAX;

  /// One operation of a request.
  struct RequestItem {
    size_t operation = kNotRun;         // its index in operations_
    StatusCode code = StatusCode::kOk;  // why it is not executed
    uint32_t intents = 0;               // intents of it that were appended to the session's list
  };
  /// One request whose operations are executed with the batch.
  struct Request {
    wire::Opcode reply{};
    uint64_t sequence = 0;
    size_t first_item = 0;
    size_t item_count = 0;
    const Projection* projection = nullptr;  // the fields that a read asks for; null: all fields
    std::string detail;                      // explains the first refusal that needs more than a code
  };

  void run_batch(Peer& peer, std::span<const Bytes> messages);
  /// Locks the session's batch lock. Returns false if the peer may not speak for the session; the peer is closed then.
  bool lock_session(Peer& peer, std::span<const Bytes> messages);

  // Decoding. Each function adds a request, or answers at once. An error ends the connection.
  Status decode(Peer& peer, Bytes message);
  /// Looks up a request that changes something in the session's reply window. Sets `done` if the request needs no
  /// execution: it is a repetition, or it was refused.
  Status check_duplicate(Peer& peer, uint64_t sequence, bool& done);
  Status decode_attach(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_read(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_write(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_revert(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_plain_read(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_plain_write(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_intents(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_scan(Peer& peer, const wire::Envelope& envelope, ByteReader& reader);

  Request& add_request(wire::Opcode reply, uint64_t sequence);
  bool check_operation_count(Peer& peer, uint64_t sequence, size_t operations);
  bool check_snapshot(Peer& peer, uint64_t sequence, const Snapshot& snapshot);
  /// Refuses a write whose transaction is complete, because recovery would not undo it any more (R5).
  bool check_transaction_open(Peer& peer, uint64_t sequence, TransactionId id);
  /// Refuses a plain write whose intents are invalid.
  bool check_intents(Peer& peer, uint64_t sequence, const wire::PlainWrite& write);
  /// Appends the intents of an operation to the session's list. Without room it adds an item with kOverloaded to the
  /// request and returns false.
  bool append_intents(Peer& peer, Request& request, const PointOperation& operation);
  bool append_intents(Peer& peer, Request& request, TableId index, std::span<const wire::IndexIntent> changes);
  /// Returns the table that holds the record. If this storage node does not serve the record, it adds an item with the
  /// reason to the request and returns null. `if_dropped` is the reason when no such table exists.
  const ServedTable* resolve_table(Request& request, const wire::RecordId& record, TableKind kind,
                                   StatusCode if_dropped = StatusCode::kNoSuchTable);
  /// Adds `operation` once for each record; a record that is not served gets an item with the reason.
  void add_each(Request& request, std::span<const wire::RecordId> records, TableKind kind, PointOperation& operation,
                StatusCode if_dropped = StatusCode::kNoSuchTable);
  /// Adds an operation that is answered with `code` and not executed.
  void add(Request& request, StatusCode code);
  /// Adds an operation to execute.
  void add(Request& request, const PointOperation& operation, uint32_t intents = 0);
  /// Sets the row of an insert or update. If the row does not fit the schema, it adds an item with kInvalidArgument to
  /// the request and returns false.
  template <class Write>
  bool set_row(Request& request, const ServedTable& table, const Write& write, PointOperation& operation);
  /// Describes the fault of operation `index` in the request's detail, unless an earlier operation has set the detail.
  void set_error_detail(Request& request, size_t index, TableId table, std::string_view what);
  /// Sets `projection` to the fields that a read names; they belong to one table. Returns false if it has refused the
  /// read.
  bool resolve_projection(Peer& peer, uint64_t sequence, const std::vector<wire::RecordId>& records,
                          FieldNumbers numbers, const Projection*& projection);
  /// Copies the projection to memory that stays valid until the end of the batch.
  const Projection* retain_for_batch(const Projection& projection);
  /// Swaps the snapshot into memory that stays valid until the end of the batch. The caller's variable receives the
  /// buffers of an earlier snapshot, so that decoding allocates nothing.
  const Snapshot* retain_for_batch(Snapshot& snapshot);

  // Execution and replies.
  /// Executes the operations that were decoded since the last call, and answers their requests.
  void execute_pending(Peer& peer);
  /// Removes the intents of failed operations, and ends the batch of the list.
  void finish_intent_batch(IntentList& list);
  void reply_to(Peer& peer, Request& request);
  template <class Reply>
  void reply_to_read(Peer& peer, const Request& request);
  template <class Reply>
  void reply_to_write(Peer& peer, Request& request);
  /// Copies the named fields of a row to memory that stays valid until the reply is sent. `size` is their size.
  Bytes project(const Projection& projection, Bytes row, size_t size);
  template <wire::Message M>
  void send(Peer& peer, uint64_t sequence, const M& message);
  /// Sends `reply_`; closes a peer that does not read its replies.
  void send_reply(Peer& peer);
  /// Answers a request with kError. `retry_after_ns` is the advice when to repeat it; 0: no advice.
  void refuse(Peer& peer, uint64_t sequence, Status status, uint64_t retry_after_ns = 0);

  // Constant after construction.
  Registry& registry_;
  SessionTable& sessions_;
  ScanHandler& scans_;
  ThreadContext& thread_;
  const ExecuteOptions execution_;
  // State of the batch under way. Requests, snapshots and projections are reused: the first *_used_ ones are in use.
  const RegistryView* view_ = nullptr;
  Status serving_status_;                 // why requests are refused, or kOk
  std::unique_lock<Mutex> session_lock_;  // batch lock of the peer's session
  std::vector<PointOperation> operations_;
  std::vector<RequestItem> items_;
  std::vector<Request> requests_;
  size_t requests_used_ = 0;
  std::vector<std::unique_ptr<Snapshot>> snapshots_;
  size_t snapshots_used_ = 0;
  std::deque<Projection> projections_;
  size_t projections_used_ = 0;
  // Buffers that are reused between batches.
  wire::Read read_;
  wire::Write write_;
  wire::Revert revert_;
  wire::PlainRead plain_read_;
  wire::PlainWrite plain_write_;
  std::vector<bool> failed_;  // for each intent of the batch: its write has failed
  std::vector<wire::ReadResult> read_results_;
  std::vector<wire::WriteResult> write_results_;
  Buffer parts_;  // projected rows of one reply
  Buffer reply_;
  ExecutorCounters counters_;
};

template <wire::Message M>
void Executor::send(Peer& peer, uint64_t sequence, const M& message) {
  reply_.clear();
  wire::encode_message(message, sequence, reply_);
  constexpr bool kAnswersRead = std::same_as<M, wire::ReadReply> || std::same_as<M, wire::PlainReadReply>;
  if constexpr (!kAnswersRead) {
    // Reads are not kept: they are executed again. store() ignores a sequence that the window does not list as running.
    if (peer.attached() && peer.session()->has_window()) peer.session()->window().store(sequence, reply_);
  }
  send_reply(peer);
}

}  // namespace loam::storage
