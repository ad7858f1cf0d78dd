// The storage node's side of the protocol with the commit manager: registration, lease, publications, fences, catalog.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/wire/manager.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/request/session_table.h"

namespace loam::storage {

/// The addresses and the size of a storage node, as it registers them at the commit manager.
struct NodeIdentity {
  std::string address;          ///< data address, at which clients connect
  std::string admin_address;    ///< address of the administration
  uint64_t capacity_bytes = 0;  ///< memory for records
};

/// Lower bound on the time that the storage node waits for the reply to a registration or a renewal. It waits for half
/// of the lease if that is longer, and then closes the connection: a new connection may renew the lease in time.
inline constexpr uint64_t kMinManagerTimeoutNs = 1'000'000'000;
/// Minimum time between the beginnings of two rounds of SessionTable::sweep(). A round looks at the intents of all idle
/// sessions, and begins only after a new publication.
inline constexpr uint64_t kMinIntentSweepIntervalNs = 1'000'000'000;

/// Keeps the storage node registered at the commit manager and applies what the commit manager sends.
///
/// Role: registers the storage node, renews its lease, and applies publications, fences and catalog changes to the
/// registry. It is a state machine without I/O: the driver passes messages and the time in, and sends the messages that
/// come out. Owner and threads: the control thread.
///
///     apart ── connected() ──▶ registering ── kRegisterNodeReply ──▶ registered
///       ▲──────────────────────── disconnected() ──────────────────┘
///
/// apart         The protocol sends nothing. Records, node number and incarnation outlive the connection.
/// registering   The registration is sent. It names the incarnation that the storage node has, or 0 at the first time.
/// registered    The reply has brought catalog, fences and publication as they are now (R9, leases of storage nodes;
///               R10, cluster identity and incarnations). The commit manager sends changes from now on.
///
/// The barrier (R7, fence barrier). A change of the catalog, a change of the fences and a publication are acknowledged
/// only when every thread of the storage node has ended the batch that it was executing at the change. step() sends the
/// acknowledgements that have come due. If several publications come due together, it acknowledges the newest alone.
///
/// A page of intents is made inside a batch, by the newest publication that the batch finds. So a page that is made
/// after an acknowledgement names no intent that the acknowledged publication covers.
///
/// A lease that had run out is granted again only behind the same barrier. The commit manager may have counted this
/// storage node as fenced meanwhile. A batch that was stopped in its middle, for example because the process was
/// paused, would write after a recoverer has asked for the intents.
class ManagerProtocol {
 public:
  /// `send` passes a message to the commit manager; it copies the bytes.
  ManagerProtocol(Registry& registry, SessionTable& sessions, EpochThread& thread, NodeIdentity identity,
                  std::function<void(Bytes)> send);

  /// Registers the storage node over a new connection.
  void connected(uint64_t now_ns);
  /// Forgets the requests and acknowledgements of a lost connection. The next registration brings the state that they
  /// were about.
  void disconnected();
  /// Applies a message of the commit manager. Every error ends the connection.
  ///   kFenced: another incarnation has replaced this one; the process ends.
  ///   kWrongCluster: the commit manager is of another cluster, or its state is not the newest of this cluster. The
  ///     storage node has applied nothing of the message and keeps its records (R10).
  ///   Other codes: the message is malformed, or the commit manager refuses the registration.
  Status received(Bytes message, uint64_t now_ns);
  /// Sends the acknowledgements that have come due, renews the lease, and continues a sweep of intents. Returns true if
  /// an acknowledgement still waits for other threads or the sweep is not at its end; call it again soon then.
  /// kTimeout: the commit manager does not answer.
  Result<bool> step(uint64_t now_ns);
  /// Returns the latest time for the next step(); UINT64_MAX: none is needed before the next message.
  uint64_t next_step_ns() const;

  bool registered() const { return registered_; }
  /// Returns the newest point of the cluster's history that an accepted commit manager has told (R10).
  const wire::HistoryPoint& known() const { return known_; }
  /// Returns whether the storage node is registered and no lease waits behind the barrier.
  bool serving() const { return registered_ && !lease_pending_; }

 private:
  /// A change that waits for the barrier, with its acknowledgement.
  struct PendingAck {
    uint64_t epoch = 0;                // reclamation epoch of the change; the barrier is this epoch's end
    uint64_t sequence = 0;             // sequence of the message to acknowledge
    wire::Opcode opcode{};             // the acknowledgement; for a reply of the commit manager: that reply
    wire::FenceSet fences{};           // with kFenceReply and kRegisterNodeReply
    wire::PublishReply publication{};  // with kPublishReply
  };

  Status apply(const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns);
  Status apply_registered(uint64_t sequence, ByteReader& reader, uint64_t now_ns);
  Status apply_renewed(uint64_t sequence, ByteReader& reader, uint64_t now_ns);
  Status apply_publish(uint64_t sequence, ByteReader& reader);
  Status apply_install(uint64_t sequence, ByteReader& reader);
  /// Extends a lease that is in force at once; grants a lease that had run out after the barrier.
  void accept_lease(uint64_t until_ns, uint64_t now_ns);
  /// Makes step() acknowledge with `opcode` when every thread has ended the batch that it is executing now.
  void ack_after_barrier(uint64_t sequence, wire::Opcode opcode, wire::FenceSet fences = {},
                         wire::PublishReply publication = {});
  /// Acknowledges the changes whose barrier has passed.
  void ack_passed();
  void acknowledge(const PendingAck& due);
  /// Begins or continues a round of SessionTable::sweep(). Returns true if the round is not at its end.
  bool sweep_intents(uint64_t now_ns);
  uint64_t request_timeout_ns() const { return std::max(lease_ns_ / 2, kMinManagerTimeoutNs); }
  template <wire::Message M>
  void send(uint64_t sequence, const M& message);

  Registry& registry_;
  SessionTable& sessions_;
  EpochThread& thread_;
  const NodeIdentity identity_;
  const std::function<void(Bytes)> send_;
  const uint64_t start_;  // random number of this process (wire::RegisterNode)
  wire::HistoryPoint known_;
  bool registered_ = false;
  std::vector<PendingAck> pending_;   // in the order of their epochs
  uint64_t sequence_ = 0;             // sequence of the last request
  uint64_t registered_sequence_ = 0;  // sequence of the registration on this connection
  uint64_t request_sequence_ = 0;     // sequence of the registration or renewal without a reply; 0: none
  uint64_t request_sent_ns_ = 0;      // when the last registration or renewal was sent; the lease runs from then
  uint64_t lease_ns_ = 0;             // 0: the commit manager gives no leases
  bool lease_pending_ = false;        // a lease waits behind the barrier
  uint64_t lease_until_ns_ = 0;       // end of that lease
  bool sweep_due_ = false;            // a publication has arrived since the last round began
  bool sweeping_ = false;             // a round is under way
  uint64_t swept_ns_ = 0;             // when the last round began
  Buffer buffer_;
};

}  // namespace loam::storage
