// Executes the requests of one network batch.
//
// All messages of a frame are decoded first, their point operations are run together (storage-node/src/version/batch.h
// overlaps their cache misses across requests and clients), then each request is answered, in order. Nothing here does
// I/O: messages come in as bytes and go out through Peer.
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

/// Bytes of rows in one answer. Reads beyond it get kOverloaded, and the client asks for them again. Well below the
/// transport's largest message.
inline constexpr size_t kMaxReplyRowBytes = size_t{4} << 20;

/// Bounds of one page of the answer to kIntents: its bytes, and the blocks of intents that are looked at for it.
inline constexpr size_t kMaxIntentPageBytes = size_t{256} << 10;
inline constexpr size_t kMaxIntentPageBlocks = 1'024;

/// Counted by one executor's thread; any thread may read.
using ExecutorCounters = ExecutorNumbers<statistics::Counter>;

/// Role: request handling of one network thread. Owner and threads: that thread. Keeps its buffers: after warm-up a
/// batch of point operations allocates nothing.
///
/// Intents (R5). The executor appends the intents of an operation to the session's list when it decodes the operation:
/// before the batch is executed, and so before the write can be read or answered. An operation for whose intents there
/// is no room is not executed (kOverloaded). After the batch, and before an answer is sent, the intents of failed
/// operations are taken back. All of that happens inside the session's batch lock, and every other reader of the list
/// takes that lock. So no reader sees an intent of a write that may still fail.
///
/// Errors. Bytes that are no message: the peer is closed with kMalformed, after the requests before them are answered.
/// A request that is refused as a whole: kError. Everything else is a code per operation. kFenced and kUnknownOutcome
/// (a repetition beyond the window, R3) close the peer too: its session is over.
class Executor {
 public:
  Executor(Registry& registry, SessionTable& sessions, ScanPort& scans, ThreadContext& thread,
           const ExecuteOptions& execution = {});

  /// The messages live until it returns.
  void run(Peer& peer, std::span<const Bytes> messages);

  const ExecutorCounters& counters() const { return counters_; }

 private:
  static constexpr size_t kNotRun = SIZE_MAX;

  /// One operation of a request: where it stands in operations_, or why it was not run.
  struct Slot {
    size_t operation = kNotRun;
    StatusCode code = StatusCode::kOk;
    uint32_t intents = 0;  // that the session's list has of it
  };
  /// One request whose operations wait for the batch.
  struct Request {
    wire::Opcode reply{};
    uint64_t sequence = 0;
    size_t first_slot = 0;
    size_t slots = 0;
    const Projection* projection = nullptr;  // of a read that asks for some fields
    std::string detail;                      // the first refusal that is more than its code
  };

  void run_batch(Peer& peer, std::span<const Bytes> messages);
  /// Takes the session's batch lock. False: the peer may not speak for it, and has been told.
  bool begin_session(Peer& peer, std::span<const Bytes> messages);

  // Decoding: each adds a request, or answers at once. An error ends the connection.
  Status decode(Peer& peer, Bytes message);
  /// Looks a request that changes something up in its session's window; `done` if nothing is left to do.
  Status look_up(Peer& peer, uint64_t sequence, bool& done);
  Status decode_attach(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_read(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_write(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_revert(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_plain_read(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_plain_write(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_intents(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_scan(Peer& peer, const wire::Envelope& envelope, ByteReader& reader);

  Request& add_request(wire::Opcode reply, uint64_t sequence);
  bool admit(Peer& peer, uint64_t sequence, size_t operations);
  bool fresh(Peer& peer, uint64_t sequence, const Snapshot& snapshot);
  /// False: the write has been refused, because its transaction is complete and recovery would not undo it any more.
  bool under_way(Peer& peer, uint64_t sequence, TransactionId id);
  /// Whether a plain write may carry its intents; else it has been refused.
  bool intents_allowed(Peer& peer, uint64_t sequence, const wire::PlainWrite& write);
  /// Records the intents of an operation. False: there is no room, and that stands in the request's next slot.
  bool record(Peer& peer, Request& request, const PointOperation& operation);
  bool record(Peer& peer, Request& request, TableId index, std::span<const wire::IndexIntent> changes);
  /// The table that serves the record; null: the reason stands in the request's next slot.
  const ServedTable* serve(Request& request, const wire::RecordId& record, TableKind kind,
                           StatusCode if_dropped = StatusCode::kNoSuchTable);
  /// `operation` for each record that a table serves.
  void add_each(Request& request, std::span<const wire::RecordId> records, TableKind kind, PointOperation& operation,
                StatusCode if_dropped = StatusCode::kNoSuchTable);
  void add(Request& request, StatusCode code);
  void add(Request& request, const PointOperation& operation, uint32_t intents = 0);
  /// The row that an insert or update brings; false: it is none, and the reason stands in the request's next slot.
  template <class Write>
  bool take_row(Request& request, const ServedTable& table, const Write& write, PointOperation& operation);
  /// Sets the request's detail to the fault of an operation, unless an earlier operation has set it.
  void explain(Request& request, size_t index, TableId table, std::string_view what);
  /// What a read asks of its one table; false: refused.
  bool take_projection(Peer& peer, uint64_t sequence, const std::vector<wire::RecordId>& records, FieldNumbers numbers,
                       const Projection*& projection);
  /// For the length of the batch.
  const Projection* keep(const Projection& projection);
  /// Moves the snapshot to where it stays for the length of the batch, and gives the caller's variable spare memory.
  const Snapshot* keep(Snapshot& snapshot);

  // Answering.
  void execute_pending(Peer& peer);
  void settle_intents(IntentList& list);
  void answer(Peer& peer, Request& request);
  template <class Reply>
  void answer_read(Peer& peer, const Request& request);
  template <class Reply>
  void answer_write(Peer& peer, Request& request);
  /// The named fields of a row, where they stay until the answer is sent.
  Bytes project(const Projection& projection, Bytes row, size_t size);
  template <wire::Message M>
  void send(Peer& peer, uint64_t sequence, const M& message);
  void send_reply(Peer& peer);
  void refuse(Peer& peer, uint64_t sequence, Status status, uint64_t retry_after_ns = 0);

  // Constant after construction.
  Registry& registry_;
  SessionTable& sessions_;
  ScanPort& scans_;
  ThreadContext& thread_;
  const ExecuteOptions execution_;
  // Of the batch under way.
  const RegistryView* view_ = nullptr;
  Status serving_;                        // why requests are refused, or kOk
  std::unique_lock<Mutex> session_lock_;  // of the peer's session
  std::vector<PointOperation> operations_;
  std::vector<Slot> slots_;
  std::vector<Request> requests_;
  size_t requests_used_ = 0;
  std::vector<std::unique_ptr<Snapshot>> snapshots_;
  size_t snapshots_used_ = 0;
  std::deque<Projection> projections_;
  size_t projections_used_ = 0;
  // Reused between batches.
  wire::Read read_;
  wire::Write write_;
  wire::Revert revert_;
  wire::PlainRead plain_read_;
  wire::PlainWrite plain_write_;
  std::vector<bool> failed_;  // of the intents of a batch
  std::vector<wire::ReadResult> read_results_;
  std::vector<wire::WriteResult> write_results_;
  Buffer parts_;  // rows of projections, of one answer
  Buffer reply_;
  ExecutorCounters counters_;
};

template <wire::Message M>
void Executor::send(Peer& peer, uint64_t sequence, const M& message) {
  reply_.clear();
  wire::encode_message(message, sequence, reply_);
  constexpr bool kAnswersRead = std::same_as<M, wire::ReadReply> || std::same_as<M, wire::PlainReadReply>;
  if constexpr (!kAnswersRead) {
    // Keeps nothing unless this answers a running request of the window.
    if (peer.attached() && peer.session()->windowed()) peer.session()->window().keep(sequence, reply_);
  }
  send_reply(peer);
}

}  // namespace loam::storage
