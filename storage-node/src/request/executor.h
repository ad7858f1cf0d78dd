// Executes the requests of one batch, that is, the messages of one network frame.
//
//   decode      each message becomes a request with point operations (operation_decoder.h), or is answered at once
//   execute     the point operations of all requests run together (request_batch.h); storage-node/src/version/batch.h
//               overlaps their cache misses across requests
//   reply       each request is answered, in the order of the messages (reply_writer.h)
//
// The executor does no I/O: the driver passes messages in as bytes, and replies go out through Peer.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "common/base/bytes.h"
#include "common/latency/batch_timer.h"
#include "common/latency/recorder.h"
#include "common/wire/storage.h"
#include "storage-node/src/request/operation_decoder.h"
#include "storage-node/src/request/peer.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/request/reply_writer.h"
#include "storage-node/src/request/request_batch.h"
#include "storage-node/src/request/session_table.h"
#include "storage-node/src/version/batch.h"

namespace loam::storage {

/// Upper bound on the bytes of one reply to kIntents.
inline constexpr size_t kMaxIntentPageBytes = size_t{256} << 10;
/// Upper bound on the blocks of intents that the executor reads for one reply to kIntents.
inline constexpr size_t kMaxIntentPageBlocks = 1'024;

/// Executes the requests of the clients of one network thread.
///
/// Role: request handling. Owner and threads: one network thread. The executor keeps its buffers between batches, so
/// after warm-up a batch of point operations allocates nothing.
///
/// Intents (R5, intents before answers). The decoder appends the intents of an operation to the session's list before
/// the batch is executed, and so before the write can be read or answered. An operation whose intents find no room is
/// not executed (kOverloaded). After the batch, and before a reply is sent, the executor removes the intents of
/// failed operations. It does all of that inside the session's batch lock, and every other reader of the list takes
/// that lock. So no reader sees an intent of a write that may still fail.
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
  /// Returns the latencies of the batches. Any thread may read them.
  const latency::Recorder& latencies() const { return latencies_; }
  /// Returns the timer of the batches; the network thread reports its rounds and sleeps to it.
  latency::BatchTimer& timer() { return timer_; }

 private:
  void run_batch(Peer& peer, std::span<const Bytes> messages);
  /// Takes the batch lock of a session.
  void lock(NodeSession& session);
  /// Locks the session's batch lock. Returns false if the peer may not speak for the session; the peer is closed then.
  bool lock_session(Peer& peer, std::span<const Bytes> messages);

  /// Decodes one message: adds a request to the batch, or answers at once. An error ends the connection.
  Status decode(Peer& peer, Bytes message);
  /// Looks up a request that changes something in the session's reply window. Sets `done` if the request needs no
  /// execution: it is a repetition, or it was refused.
  Status check_duplicate(Peer& peer, uint64_t sequence, bool& done);
  Status decode_attach(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_intents(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status decode_scan(Peer& peer, const wire::Envelope& envelope, ByteReader& reader);

  /// Executes the requests that were decoded since the last call, and answers them.
  void execute_pending(Peer& peer);
  /// Removes the intents of failed operations, and ends the batch of the list.
  void finish_intent_batch(IntentList& list);

  // Constant after construction.
  Registry& registry_;
  SessionTable& sessions_;
  ScanHandler& scans_;
  ThreadContext& thread_;
  const ExecuteOptions execution_;
  ExecutorCounters counters_;
  latency::Recorder latencies_;
  latency::BatchTimer timer_{latencies_};
  ReplyWriter replies_;
  // State of the current batch.
  const RegistryView* view_ = nullptr;
  Status serving_status_;                 // why requests are refused, or kOk
  std::unique_lock<Mutex> session_lock_;  // batch lock of the peer's session
  RequestBatch batch_;
  OperationDecoder decoder_;  // adds to batch_
  // Buffers that are reused between batches.
  Buffer retained_reply_;     // a reply of the session's window, which answers a repetition
  std::vector<bool> failed_;  // for each intent of the batch: its write has failed
};

}  // namespace loam::storage
