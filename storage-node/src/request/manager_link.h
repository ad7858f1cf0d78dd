// The storage node's side of its conversation with the commit manager.
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

/// What the node tells the commit manager of itself.
struct NodeIdentity {
  std::string address;
  std::string admin_address;
  uint64_t capacity_bytes = 0;
};

/// The node closes a connection to the commit manager when a request on it has waited this long for its answer, or for
/// half of the lease if that is longer. A new connection may renew the lease before it runs out.
inline constexpr uint64_t kMinManagerPatienceNs = 1'000'000'000;
/// Minimum time between the beginnings of two rounds of SessionTable::sweep(). A round looks at the intents of all idle
/// sessions, and needs a new publication to begin.
inline constexpr uint64_t kIntentSweepNs = 1'000'000'000;

/// Role: registers the node, keeps its lease, and applies publications, fences and catalog changes to the registry.
/// State machine without I/O: the driver passes messages and the time in and sends what comes out. Owner and threads:
/// the control thread.
///
///     apart ── connected() ──▶ registering ── kNodeRegistered ──▶ registered
///       ▲──────────────────────── disconnected() ──────────────────┘
///
/// The node's memory and its number outlive the connection: it registers again with the incarnation that it has, and
/// takes everything as it is by then (R9, R10).
///
/// The barrier (R7). A change of the catalog or of the fences, and a publication, is answered only when every thread of
/// the node has ended the batch that it was in when the change was made: step() sends the answers that have come due.
/// Of publications that come due together only the newest is answered. A page of intents is made inside a batch, by the
/// newest publication that the batch finds, so none that is made after an answer names what that publication covers. A
/// lease that had run
/// out is taken up again only behind the same barrier: the commit manager may have counted this node as fenced since,
/// and a batch that was stopped in its middle (the process may have been) would write after a recoverer has looked.
class ManagerLink {
 public:
  /// `send` takes a copy of a message for the commit manager.
  ManagerLink(Registry& registry, SessionTable& sessions, EpochThread& thread, NodeIdentity identity,
              std::function<void(Bytes)> send);

  /// The connection stands: registers.
  void connected(uint64_t now_ns);
  /// The connection is lost: what it still wanted an answer to is asked again on the next one.
  void disconnected();
  /// kFenced: this incarnation was replaced, the node has no more use. kWrongCluster: the commit manager is of another
  /// cluster, or its state is not the newest of this one; nothing of what it said was taken, and the node keeps what it
  /// has (R10). Else why the connection has none.
  Status received(Bytes message, uint64_t now_ns);
  /// Answers what has come due, renews the lease, and goes on with a sweep of intents; true if something still waits
  /// for other threads, or the sweep is not at its end. kTimeout: the commit manager does not answer.
  Result<bool> step(uint64_t now_ns);
  /// When step() has something to do at the latest; UINT64_MAX: when a message comes.
  uint64_t wake_ns() const;

  bool registered() const { return registered_; }
  /// What the node was told last by the commit managers that it accepted.
  const wire::KnownHistory& known() const { return known_; }
  /// Registered, and the lease is in force.
  bool serving() const { return registered_ && !lease_waits_; }

 private:
  struct PendingAnswer {
    uint64_t epoch = 0;
    uint64_t sequence = 0;
    wire::Opcode opcode{};                     // the answer, or what was taken up without one
    wire::FenceSet fences{};                   // of a kFence or kNodeRegistered
    wire::PublicationInstalled publication{};  // of a kPublish
  };

  Status apply(const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns);
  Status apply_registered(uint64_t sequence, ByteReader& reader, uint64_t now_ns);
  Status apply_renewed(uint64_t sequence, ByteReader& reader, uint64_t now_ns);
  Status apply_publish(uint64_t sequence, ByteReader& reader);
  Status apply_install(uint64_t sequence, ByteReader& reader);
  void take_lease(uint64_t until_ns, uint64_t now_ns);
  /// `opcode` is what step() sends when every thread has seen the changes made so far.
  void answer_when_seen(uint64_t sequence, wire::Opcode opcode, wire::FenceSet fences = {},
                        wire::PublicationInstalled publication = {});
  void answer_seen();
  void answer(const PendingAnswer& due);
  bool sweep_intents(uint64_t now_ns);
  uint64_t patience_ns() const { return std::max(lease_ns_ / 2, kMinManagerPatienceNs); }
  template <wire::Message M>
  void send(uint64_t sequence, const M& message);

  Registry& registry_;
  SessionTable& sessions_;
  EpochThread& thread_;
  const NodeIdentity identity_;
  const std::function<void(Bytes)> send_;
  const uint64_t start_;  // this process's own (wire::RegisterNode)
  wire::KnownHistory known_;
  bool registered_ = false;
  std::vector<PendingAnswer> pending_;
  uint64_t sequence_ = 0;             // of the last request
  uint64_t registered_sequence_ = 0;  // of the registration on this connection
  uint64_t asked_sequence_ = 0;       // the registration or renewal that waits for its answer; 0: none
  uint64_t asked_ns_ = 0;             // when it was sent: the lease runs from then
  uint64_t lease_ns_ = 0;             // 0: the commit manager gives no leases
  bool lease_waits_ = false;          // behind the barrier
  uint64_t lease_until_ns_ = 0;       // what the registry gets then
  bool sweep_due_ = false;            // a publication has come since the last round began
  bool sweeping_ = false;             // a round is under way
  uint64_t swept_ns_ = 0;             // when it began
  Buffer buffer_;
};

}  // namespace loam::storage
