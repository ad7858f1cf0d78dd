// Encodes the replies of a network thread and sends them.
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "common/base/bytes.h"
#include "common/wire/storage.h"
#include "storage-node/src/request/peer.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/request/request_batch.h"

namespace loam::storage {

/// Upper bound on the bytes of rows in one reply. Reads beyond it get kOverloaded, and the client sends them again. The
/// bound is well below the transport's largest message.
inline constexpr size_t kMaxReplyRowBytes = size_t{4} << 20;

/// Encodes replies and sends them to their peers.
///
/// Every reply except the replies to reads also goes into the reply window of the session, which answers repetitions of
/// the request (R3, idempotent requests). Reads are executed again instead.
///
/// Owner: the executor of a network thread. Threads: one. The writer keeps its buffers, so after warm-up a reply
/// allocates nothing.
class ReplyWriter {
 public:
  /// Sends a reply.
  template <wire::Message M>
  void send(Peer& peer, uint64_t sequence, const M& message);
  /// Sends a reply that is already encoded. Closes a peer that does not read its replies.
  void send_encoded(Peer& peer, Bytes reply);
  /// Answers a request with kError. `retry_after_ns` advises the client when to repeat it; 0: no advice.
  void refuse(Peer& peer, uint64_t sequence, Status status, uint64_t retry_after_ns = 0);
  /// Answers a request of a batch that was executed. With kNoSpace the client gets the text of `report`.
  void send_results(Peer& peer, const RegistryView& view, const MemoryReport& report, const RequestBatch& batch,
                    RequestBatch::Request& request);

 private:
  template <class Reply>
  void send_read_results(Peer& peer, const RequestBatch& batch, const RequestBatch::Request& request);
  template <class Reply>
  void send_write_results(Peer& peer, const RegistryView& view, const MemoryReport& report, const RequestBatch& batch,
                          RequestBatch::Request& request);
  /// Encodes a reply into `reply_`, and stores it in the reply window of the session.
  template <wire::Message M>
  void encode(Peer& peer, uint64_t sequence, const M& message);
  /// Copies the named fields of a row to memory that stays valid until the reply is sent. `size` is their size.
  Bytes project(const Projection& projection, Bytes row, size_t size);

  std::vector<wire::ReadResult> read_results_;
  std::vector<wire::WriteResult> write_results_;
  Buffer projected_rows_;  // of one reply
  Buffer reply_;
};

template <wire::Message M>
void ReplyWriter::send(Peer& peer, uint64_t sequence, const M& message) {
  encode(peer, sequence, message);
  send_encoded(peer, reply_);
}

template <wire::Message M>
void ReplyWriter::encode(Peer& peer, uint64_t sequence, const M& message) {
  reply_.clear();
  wire::encode_message(message, sequence, reply_);
  constexpr bool kAnswersRead = std::same_as<M, wire::ReadReply> || std::same_as<M, wire::PlainReadReply>;
  if constexpr (!kAnswersRead) {
    // store() ignores a sequence that the window does not list as running.
    if (peer.attached() && peer.session()->has_window()) peer.session()->window().store(sequence, reply_);
  }
}

}  // namespace loam::storage
