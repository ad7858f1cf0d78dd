// Storage nodes: registration, publications, changes of the catalog.
#include <utility>

#include "commit-manager/src/core/core_impl.h"

namespace loam::commit {

Status Core::Impl::register_node(Peer& peer, uint64_t sequence, ByteReader& reader, uint64_t now_ns) {
  wire::RegisterNode request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (peer.session != nullptr) return {StatusCode::kMalformed, "a client with a session registers as a storage node"};
  if (peer.node.value != 0 && peer.register_sequence != sequence) {
    return {StatusCode::kMalformed, "a storage node registers twice on one connection"};
  }
  bool dealt = false;
  if (peer.node.value == 0) {
    if (const auto before = catalog_.find_live(request.address)) {
      // It has started anew, and the end of its old connection has not been seen yet.
      Peer& old = *peer_of(*before);
      const Status why(StatusCode::kUnavailable, "another start of the storage node at " + request.address);
      node_gone(*before, why);
      old.node = NodeId(0);
      doom(old, why);
    }
    Result<wire::NodeInfo> node = catalog_.register_node(request);
    if (!node.ok()) {
      ++refused_;
      send(peer, sequence, wire::Error{node.status()});
      return ok_status();
    }
    peer.node = node->id;
    peer.register_sequence = sequence;
    node_peers_[node->id] = peer.id;
    dealt = catalog_.deal_shards();
    outbox_.note("storage node " + std::to_string(node->id.value) + " at " + node->address + " registered" +
                 (dealt ? ", shards dealt out" : ""));
  }
  wire::NodeRegistered registered;
  registered.node = peer.node;
  registered.incarnation = catalog_.nodes()[peer.node.value - 1].info.incarnation;
  registered.manager_epoch = options_.epoch;
  registered.catalog = catalog_.catalog(true);
  transactions_.publish(now_ns, registered.publication);
  republish_ = true;  // the others shall not stay behind
  send(peer, sequence, registered);
  if (dealt) changes_.shards_dealt(peer.node);
  return ok_status();
}

Status Core::Impl::node_answer(Peer& peer, const wire::Envelope& envelope, ByteReader& reader) {
  if (peer.node.value == 0) {
    return {StatusCode::kMalformed, std::string(to_string(envelope.opcode)) + " from a peer that is no storage node"};
  }
  Status outcome;
  if (envelope.opcode == wire::Opcode::kError) {
    wire::Error error;
    LOAM_RETURN_IF_ERROR(decode(reader, error));
    if (error.status.ok()) return {StatusCode::kMalformed, "an error without an error"};
    outcome = std::move(error.status);
  } else if (envelope.opcode == wire::Opcode::kTableInstalled) {
    wire::TableInstalled installed;
    LOAM_RETURN_IF_ERROR(decode(reader, installed));
  } else {
    wire::TableRemoved removed;
    LOAM_RETURN_IF_ERROR(decode(reader, removed));
  }
  return changes_.acknowledge(peer.node, envelope.sequence, std::move(outcome));
}

void Core::Impl::node_gone(NodeId node, const Status& why) {
  catalog_.node_died(node);
  changes_.node_died(node);
  node_peers_.erase(node);
  outbox_.note("storage node " + std::to_string(node.value) + " counts as dead: " + why.to_string());
}

Core::Impl::Peer* Core::Impl::peer_of(NodeId node) {
  const auto at = node_peers_.find(node);
  return at == node_peers_.end() ? nullptr : &peers_.at(at->second);
}

void Core::Impl::install(NodeId node, uint64_t sequence, const wire::InstallTable& message) {
  send(*peer_of(node), sequence, message);
}

void Core::Impl::remove(NodeId node, uint64_t sequence, const wire::RemoveTable& message) {
  send(*peer_of(node), sequence, message);
}

}  // namespace loam::commit
