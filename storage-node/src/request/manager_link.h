// The storage node's side of its conversation with the commit manager.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/wire/manager.h"
#include "storage-node/src/request/registry.h"

namespace loam::storage {

/// What the node tells the commit manager of itself.
struct NodeIdentity {
  std::string address;
  std::string admin_address;
  uint64_t capacity_bytes = 0;
};

/// Role: registers the node, and applies publications and catalog changes to the registry. State machine without I/O:
/// the driver passes messages in and sends what comes out. Owner and threads: the control thread.
///
///     idle ── connected() ──▶ registering ── kNodeRegistered ──▶ in service
///
/// A change of the catalog is answered only when every thread of the node has ended the batch that it was in when the
/// change was made (as R7 asks of fences): step() sends the answers that have come due.
class ManagerLink {
 public:
  /// `send` takes a copy of a message for the commit manager.
  ManagerLink(Registry& registry, EpochThread& thread, NodeIdentity identity, std::function<void(Bytes)> send);

  /// The connection stands: registers.
  void connected();
  /// kMalformed, or why the node cannot serve; the connection is of no use then.
  Status received(Bytes message);
  /// Answers what has come due; true if something still waits.
  bool step();

  bool registered() const { return registered_; }

 private:
  struct PendingAnswer {
    uint64_t epoch = 0;
    uint64_t sequence = 0;
    wire::Opcode opcode{};
  };

  Status apply_registered(ByteReader& reader);
  void answer_when_seen(uint64_t sequence, wire::Opcode opcode);
  template <wire::Message M>
  void send(uint64_t sequence, const M& message);

  Registry& registry_;
  EpochThread& thread_;
  const NodeIdentity identity_;
  const std::function<void(Bytes)> send_;
  bool registered_ = false;
  std::vector<PendingAnswer> pending_;
  Buffer buffer_;
};

}  // namespace loam::storage
