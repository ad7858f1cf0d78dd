// Storage nodes: registration, leases, answers [R9, R10].
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/env.h"

namespace loam::commit {

Status Core::Impl::register_node(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::RegisterNode request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (peer.session != nullptr) return {StatusCode::kMalformed, "a client with a session registers as a storage node"};
  if (peer.node.value != 0 && peer.register_sequence != sequence) {
    return {StatusCode::kMalformed, "a storage node registers twice on one connection"};
  }
  if (peer.node.value != 0) {
    if (!registering_.contains(peer.node)) tell_registered(peer, false);  // otherwise the answer will come
    return ok_status();
  }
  if (Status status = identify(request); !status.ok()) {
    ++counts_.refused;
    send(peer, sequence, wire::Error{std::move(status)});
    return ok_status();
  }
  const auto registration = catalog_.register_node(request);
  if (registration.ok()) {
    enter_node(peer, sequence, *registration);
    return ok_status();
  }
  ++counts_.refused;
  if (Status full = room_to_wait(); !full.ok()) {
    doom(peer, std::move(full), false);
    return ok_status();
  }
  Buffer refusal;
  wire::encode_message(wire::Error{registration.status()}, sequence, refusal);
  send_when_stored(peer.id, std::move(refusal));  // what it contradicts may not be stored yet
  return ok_status();
}

/// Answers with the stored catalog. Changes that are not stored yet follow when they are.
void Core::Impl::tell_registered(Peer& peer, bool entered) {
  const NodeStatus& node = catalog_.node(peer.node);
  wire::NodeRegistered registered;
  registered.node = peer.node;
  registered.incarnation = node.info.incarnation;
  registered.manager_epoch = options_.epoch;
  registered.catalog = shown_catalog(true);
  registered.fences = fence_set();
  registered.lease_ns = options_.node_lease_ns;
  registered.memory_lost = node.memory_lost;
  registered.history = history_;
  if (!restarting_) {
    make_publication(registered.publication);
    republish_ = true;  // the others shall not stay behind, and this one shall acknowledge one
  }
  send(peer, peer.register_sequence, registered);
  if (restarting_ || !ended_.empty() || awaited_.sequence != 0 || raised_.sequence != 0) send_fence(peer.node);
  if (!entered) return;
  informed_.insert(peer.node);
  changes_.tell_again(peer.node);
}

/// A change of the tables or the shard map waits for the nodes whose leases run when it is made. A node that was
/// unreachable then, and comes back before the change is stored, would never hear of it: it has to wait for the store.
bool Core::Impl::can_tell_registered(NodeId node) const {
  if (!stored_.has_registration(catalog_.node(node))) return false;
  return informed_.contains(node) || stored_.told_revision == catalog_.told_revision();
}

/// Its process has started anew, or connected anew, and the end of the old connection has not been seen yet.
void Core::Impl::close_earlier_connections(NodeId node) {
  const auto connected = node_peers_.find(node);
  const auto registering = registering_.find(node);
  if (connected == node_peers_.end() && registering == registering_.end()) return;
  Env::probe("manager.node.connected_anew");
  Peer& before = peers_.at(connected != node_peers_.end() ? connected->second : registering->second.peer);
  before.node = NodeId(0);
  doom(before, {StatusCode::kUnavailable, "the storage node has registered over another connection"}, false);
  node_peers_.erase(node);
  registering_.erase(node);
}

void Core::Impl::enter_node(Peer& peer, uint64_t sequence, const CatalogStore::Registration& registration) {
  const NodeId id = registration.node;
  close_earlier_connections(id);
  peer.node = id;
  peer.register_sequence = sequence;
  leases_.registered(id, registration.new_start, now_ns_);
  if (registration.new_start) known_by_.erase(id);
  const auto loss = losses_.find(id);
  if (loss != losses_.end() && (loss->second.sequence != 0 || registration.new_start)) {
    const auto done = std::move(loss->second.done);
    losses_.erase(loss);
    if (!catalog_.node(id).memory_lost) {
      when_stored(done);
    } else {
      done({StatusCode::kUnavailable, "storage node " + std::to_string(id.value) +
                                          " has started anew meanwhile; look at its state, and accept the loss again"});
    }
  }
  const bool dealt = catalog_.deal_shards();
  const NodeStatus& node = catalog_.node(id);
  outbox_.note(
      "storage node " + std::to_string(id.value) + " at " + node.info.address +
      (registration.new_start ? " started as incarnation " : " came back as incarnation ") +
      std::to_string(node.info.incarnation.value) +
      (node.memory_lost ? ": the records of its shards are lost, until that is accepted nobody gets at them" : "") +
      (dealt ? ", shards dealt out" : ""));
  if (durable_ == nullptr || (!dealt && can_tell_registered(id))) {
    node_peers_[id] = peer.id;
    tell_registered(peer, true);
  } else {
    registering_[id] = {peer.id, state_number()};
  }
  if (dealt) changes_.shards_dealt(id);
}

Status Core::Impl::renew_node(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::RenewNode request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (peer.node.value == 0) return {StatusCode::kMalformed, "a lease is renewed by a peer that is no storage node"};
  leases_.renewed(peer.node, now_ns_);
  send(peer, sequence, wire::NodeRenewed{history_.state, history_.log});
  return ok_status();
}

Status Core::Impl::node_answer(Peer& peer, const wire::Envelope& envelope, ByteReader& reader) {
  if (peer.node.value == 0) {
    return {StatusCode::kMalformed, std::string(to_string(envelope.opcode)) + " from a peer that is no storage node"};
  }
  if (envelope.opcode == wire::Opcode::kPublicationInstalled) {
    wire::PublicationInstalled installed;
    LOAM_RETURN_IF_ERROR(decode(reader, installed));
    publication_installed(peer.node, installed);
    return ok_status();
  }
  if (envelope.sequence == 0 || envelope.sequence > last_sequence_) {
    return {StatusCode::kMalformed, "a storage node answers a request that it was never sent"};
  }
  switch (envelope.opcode) {
    case wire::Opcode::kError: {
      wire::Error error;
      LOAM_RETURN_IF_ERROR(decode(reader, error));
      if (error.status.ok()) return {StatusCode::kMalformed, "an error without an error"};
      return node_error(peer, envelope.sequence, std::move(error.status));
    }
    case wire::Opcode::kFenceInstalled: {
      wire::FenceInstalled installed;
      LOAM_RETURN_IF_ERROR(decode(reader, installed));
      LOAM_RETURN_IF_ERROR(leases_.acknowledge(peer.node, envelope.sequence));
      advance_fencing();
      return ok_status();
    }
    case wire::Opcode::kLossAccepted: {
      wire::LossAccepted accepted;
      LOAM_RETURN_IF_ERROR(decode(reader, accepted));
      return loss_accepted(peer.node, envelope.sequence, ok_status());
    }
    case wire::Opcode::kTableInstalled: {
      wire::TableInstalled installed;
      LOAM_RETURN_IF_ERROR(decode(reader, installed));
      break;
    }
    default: {
      wire::TableRemoved removed;
      LOAM_RETURN_IF_ERROR(decode(reader, removed));
      break;
    }
  }
  changes_.acknowledge(peer.node, envelope.sequence, ok_status());
  return ok_status();
}

Status Core::Impl::node_error(Peer& peer, uint64_t sequence, Status error) {
  if (changes_.awaits(sequence)) {
    changes_.acknowledge(peer.node, sequence, error);
    return ok_status();
  }
  if (const auto at = losses_.find(peer.node); at != losses_.end() && at->second.sequence == sequence) {
    return loss_accepted(peer.node, sequence, std::move(error));
  }
  if (leases_.was_told(peer.node, sequence)) {
    Env::probe("manager.node.refuses_fence");
    // It cannot fence, so it must not go on: without the connection its lease runs out.
    doom(peer, {error.code(), "the storage node refuses a fence: " + std::string(error.message())}, false);
  }
  return ok_status();
}

Status Core::Impl::loss_accepted(NodeId node, uint64_t sequence, Status outcome) {
  const auto at = losses_.find(node);
  if (at == losses_.end() || at->second.sequence != sequence) return ok_status();  // a repetition
  const auto done = std::move(at->second.done);
  losses_.erase(at);
  if (outcome.ok()) {
    Env::probe("manager.node.loss_accepted");
    catalog_.loss_told(node);
    outbox_.note("storage node " + std::to_string(node.value) + " serves its shards, empty: the loss was accepted");
  }
  when_stored([done, outcome = std::move(outcome)](const Status& stored) { done(stored.ok() ? outcome : stored); });
  return ok_status();
}

void Core::Impl::accept_loss(NodeId id, std::function<void(Status)> done) {
  const std::string who = "storage node " + std::to_string(id.value);
  if (!durable_status_.ok()) return done(durable_status_);
  if (!stale_.ok()) return done(stale_);
  if (!catalog_.known(id)) return done({StatusCode::kInvalidArgument, who + " does not exist"});
  switch (catalog_.node(id).info.state) {
    case wire::NodeState::kLive:
      return done({StatusCode::kInvalidArgument, who + " is live and has lost nothing"});
    case wire::NodeState::kUnreachable:
      return done({StatusCode::kUnavailable, who + " at " + catalog_.node(id).info.address +
                                                 " cannot be reached: start it anew first, then accept the loss"});
    case wire::NodeState::kLost:
      break;
  }
  Peer* peer = peer_of(id);
  if (peer == nullptr || losses_.contains(id)) {
    return done(
        {StatusCode::kUnavailable,
         who + (peer == nullptr ? " is not connected at the moment" : " is being told already") + "; try again"});
  }
  losses_[id] = {0, std::move(done)};
  decide_losses();
  settle();
}

/// Of nodes whose earlier processes hold no lease any more: they could answer writes of transactions that begin later.
/// Decided and stored before the node hears of it: what it then serves must not count as lost again after a restart.
void Core::Impl::decide_losses() {
  for (auto& [id, loss] : losses_) {
    Peer* peer = peer_of(id);
    if (loss.sequence != 0 || peer == nullptr || !leases_.earlier_over(id, now_ns_)) continue;
    // A transaction that has written there may not be committed in part.
    lost_up_to_ = transactions_.last_id();
    catalog_.accept_loss(id);
    changes_.damage_indexes();
    loss.sequence = next_sequence();
    Buffer message;
    wire::encode_message(wire::AcceptLoss{}, loss.sequence, message);
    // Sessions that end before the node hears of it have nothing there; those that end later may.
    when_stored([this, node = id](const Status& stored) {
      if (stored.ok()) nothing_left_at(node);
    });
    send_when_stored(peer->id, std::move(message));
  }
}

/// A node that loses its lease loses the connection too, because only a registration brings it everything that it has
/// missed.
void Core::Impl::expire_nodes(uint64_t now_ns) {
  for (const auto& [node, registering] : registering_) leases_.renewed(node, now_ns);  // they wait for the disk
  for (const NodeId id : leases_.expire(now_ns)) {
    Env::probe("manager.node.lease_expired");
    ++counts_.node_leases_expired;
    catalog_.node_unreachable(id);
    informed_.erase(id);
    changes_.stop_awaiting(id);
    outbox_.note("storage node " + std::to_string(id.value) + " is unreachable: its lease ran out");
    if (const auto loss = losses_.find(id); loss != losses_.end()) {
      const auto done = std::move(loss->second.done);
      losses_.erase(loss);
      done({StatusCode::kUnknownOutcome, "storage node " + std::to_string(id.value) +
                                             " cannot be reached any more; look at its state when it is back"});
    }
    if (Peer* peer = peer_of(id); peer != nullptr) {
      doom(*peer, {StatusCode::kUnavailable, "its lease ran out; register again"}, false);
    }
  }
}

Core::Impl::Peer* Core::Impl::peer_of(NodeId node) {
  const auto at = node_peers_.find(node);
  return at == node_peers_.end() ? nullptr : &peers_.at(at->second);
}

void Core::Impl::install(NodeId node, uint64_t sequence, const wire::InstallTable& message) {
  if (Peer* peer = peer_of(node); peer != nullptr) send(*peer, sequence, message);
}

void Core::Impl::remove(NodeId node, uint64_t sequence, const wire::RemoveTable& message) {
  if (Peer* peer = peer_of(node); peer != nullptr) send(*peer, sequence, message);
}

}  // namespace loam::commit
