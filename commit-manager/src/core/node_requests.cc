// Storage nodes: registration, leases, replies, accepted losses [R9, leases of storage nodes; R10, cluster identity
// and incarnations].
//
// A registration passes through these phases. The node serves under its earlier lease and catalog until the last one.
//
//   1. check_identity()           compares the histories. A node of another cluster or with a newer history is
//                                 refused.
//   2. apply_registration()       starts the lease, and notes the incarnation, which has to be stored.
//   3. pending_registrations_     while the incarnation is being stored: a crash must not give its number twice.
//   4. send_registration_reply()  tells catalog, fences, history and publication, all as they are stored. The node is
//                                 in node_peers_ from now on, so it hears of every later change.
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/env.h"

namespace loam::commit {

/// Checks the identity of a node. If the core becomes stale, it closes the connections of all clients and storage
/// nodes. The storage nodes keep their records without a lease.
Status Core::Impl::check_identity(const wire::RegisterNode& request) {
  const bool was_stale = !identity_.stale().ok();
  Status status = identity_.check_node(request);
  if (was_stale || identity_.stale().ok()) return status;
  for (auto& [id, peer] : peers_) {
    if (peer.session != nullptr || peer.node.value != 0) close_later(peer, identity_.stale(), false);
  }
  return status;
}

Status Core::Impl::register_node(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::RegisterNode request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (peer.session != nullptr)
    return {StatusCode::kMalformed, "a client with a session cannot register as a storage node"};
  if (peer.node.value != 0 && peer.register_sequence != sequence) {
    return {StatusCode::kMalformed, "a storage node cannot register twice on one connection"};
  }
  if (peer.node.value != 0) {
    if (!pending_registrations_.contains(peer.node))
      send_registration_reply(peer, false);  // otherwise the reply follows when the registration is stored
    return ok_status();
  }
  if (Status status = check_identity(request); !status.ok()) {
    ++counts_.refused;
    send(peer, sequence, wire::Error{std::move(status)});
    return ok_status();
  }
  const auto registration = catalog_.register_node(request);
  if (registration.ok()) {
    apply_registration(peer, sequence, *registration);
    return ok_status();
  }
  ++counts_.refused;
  if (Status full = states_.check_room(); !full.ok()) {
    close_later(peer, std::move(full), false);
    return ok_status();
  }
  Buffer refusal;
  wire::encode_message(wire::Error{registration.status()}, sequence, refusal);
  send_when_stored(peer.id, std::move(refusal));  // the refusal may depend on a registration that is not stored yet
  return ok_status();
}

/// Sends the stored catalog. Changes that are not stored yet follow when they are.
void Core::Impl::send_registration_reply(Peer& peer, bool entered) {
  const NodeStatus& node = catalog_.node(peer.node);
  wire::RegisterNodeReply registered;
  registered.node = peer.node;
  registered.incarnation = node.info.incarnation;
  registered.manager_epoch = options_.epoch;
  registered.catalog = states_.shown_catalog(true);
  registered.fences = fence_set();
  registered.lease_ns = options_.node_lease_ns;
  registered.memory_lost = node.memory_lost;
  registered.history = identity_.history();
  if (!restarting_) {
    make_publication(registered.publication);
    // The other nodes get it by a publication too. This node acknowledges that one: it acknowledges publications
    // only.
    republish_ = true;
  }
  send(peer, peer.register_sequence, registered);
  if (restarting_ || ended_sessions_.fence_needed_at_registration()) send_fence(peer.node);
  if (!entered) return;
  synced_nodes_.insert(peer.node);
  changes_.resend(peer.node);
}

/// A change of the tables or the shard map waits for the nodes whose leases run when it is made. A node that was
/// unreachable then, and returns before the change is stored, would get a catalog without the change and never hear
/// of it. Such a node has to wait for the store.
bool Core::Impl::can_send_registration_reply(NodeId node) const {
  if (!states_.stored().has_registration(catalog_.node(node))) return false;
  return synced_nodes_.contains(node) || states_.stored().node_catalog_revision == catalog_.node_catalog_revision();
}

/// The process of the node has connected again, or a new process has started, before the commit manager has noticed
/// the end of the old connection.
void Core::Impl::close_earlier_connections(NodeId node) {
  const auto connected = node_peers_.find(node);
  const auto registering = pending_registrations_.find(node);
  if (connected == node_peers_.end() && registering == pending_registrations_.end()) return;
  Env::probe("manager.node.connected_anew");
  Peer& before = peers_.at(connected != node_peers_.end() ? connected->second : registering->second.peer);
  before.node = NodeId(0);
  close_later(before, {StatusCode::kUnavailable, "the storage node has registered over another connection"}, false);
  node_peers_.erase(node);
  pending_registrations_.erase(node);
}

void Core::Impl::apply_registration(Peer& peer, uint64_t sequence, const CatalogStore::Registration& registration) {
  const NodeId id = registration.node;
  close_earlier_connections(id);
  peer.node = id;
  peer.register_sequence = sequence;
  leases_.registered(id, registration.new_start, now_ns_);
  if (registration.new_start) acknowledged_publications_.forget(id);
  // A loss that is being accepted: a registration with the decision stored confirms it; a new process is a new loss.
  const auto loss = losses_.find(id);
  if (loss != losses_.end() && (loss->second.sequence != 0 || registration.new_start)) {
    const auto done = std::move(loss->second.done);
    losses_.erase(loss);
    if (!catalog_.node(id).memory_lost) {
      when_stored(done);
    } else {
      done({StatusCode::kUnavailable,
            "storage node " + std::to_string(id.value) +
                " has been started again meanwhile; check its state, and accept the loss again"});
    }
  }
  const bool shards_assigned = catalog_.assign_shards();
  const NodeStatus& node = catalog_.node(id);
  outbox_.log({node.memory_lost ? LogLevel::kWarning : LogLevel::kInfo,
               "node.registered",
               "storage node " + std::to_string(id.value) + " at " + node.info.address +
                   (registration.new_start ? " started as incarnation " : " came back as incarnation ") +
                   std::to_string(node.info.incarnation.value) +
                   (node.memory_lost ? ": the records of its shards are lost; requests for these shards are "
                                       "refused until the loss is accepted"
                                     : "") +
                   (shards_assigned ? ", shards dealt out" : ""),
               {{"node", id.value}, {"address", node.info.address}, {"incarnation", node.info.incarnation.value}}});
  if (!states_.enabled() || (!shards_assigned && can_send_registration_reply(id))) {
    node_peers_[id] = peer.id;
    send_registration_reply(peer, true);
  } else {
    pending_registrations_[id] = {peer.id, state_number()};
  }
  if (shards_assigned) changes_.distribute_shard_map(id);
}

Status Core::Impl::renew_node(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::RenewNode request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (peer.node.value == 0) return {StatusCode::kMalformed, "a peer that is no storage node cannot renew a lease"};
  leases_.renewed(peer.node, now_ns_);
  send(peer, sequence, wire::RenewNodeReply{identity_.history().state, identity_.history().log});
  return ok_status();
}

Status Core::Impl::handle_node_reply(Peer& peer, const wire::Envelope& envelope, ByteReader& reader) {
  if (peer.node.value == 0) {
    return {StatusCode::kMalformed, std::string(to_string(envelope.opcode)) + " from a peer that is no storage node"};
  }
  if (envelope.opcode == wire::Opcode::kPublishReply) {
    wire::PublishReply installed;
    LOAM_RETURN_IF_ERROR(decode(reader, installed));
    handle_publication_ack(peer.node, installed);
    return ok_status();
  }
  if (envelope.sequence == 0 || envelope.sequence > last_sequence_) {
    return {StatusCode::kMalformed, "a storage node answers a request that it was never sent"};
  }
  switch (envelope.opcode) {
    case wire::Opcode::kError: {
      wire::Error error;
      LOAM_RETURN_IF_ERROR(decode(reader, error));
      if (error.status.ok()) return {StatusCode::kMalformed, "an error message without an error code"};
      return handle_node_error(peer, envelope.sequence, std::move(error.status));
    }
    case wire::Opcode::kFenceReply: {
      wire::FenceReply installed;
      LOAM_RETURN_IF_ERROR(decode(reader, installed));
      LOAM_RETURN_IF_ERROR(leases_.acknowledge(peer.node, envelope.sequence));
      ended_sessions_.advance(now_ns_);
      return ok_status();
    }
    case wire::Opcode::kAcceptLossReply: {
      wire::AcceptLossReply accepted;
      LOAM_RETURN_IF_ERROR(decode(reader, accepted));
      return finish_loss_acceptance(peer.node, envelope.sequence, ok_status());
    }
    case wire::Opcode::kInstallTableReply: {
      wire::InstallTableReply installed;
      LOAM_RETURN_IF_ERROR(decode(reader, installed));
      break;
    }
    default: {
      wire::RemoveTableReply removed;
      LOAM_RETURN_IF_ERROR(decode(reader, removed));
      break;
    }
  }
  changes_.acknowledge(peer.node, envelope.sequence, ok_status());
  return ok_status();
}

Status Core::Impl::handle_node_error(Peer& peer, uint64_t sequence, Status error) {
  if (changes_.awaits(sequence)) {
    changes_.acknowledge(peer.node, sequence, error);
    return ok_status();
  }
  if (const auto at = losses_.find(peer.node); at != losses_.end() && at->second.sequence == sequence) {
    return finish_loss_acceptance(peer.node, sequence, std::move(error));
  }
  if (leases_.fence_was_sent(peer.node, sequence)) {
    Env::probe("manager.node.refuses_fence");
    // A node without the fence may execute writes of ended sessions. Without a connection its lease runs out.
    close_later(peer, {error.code(), "the storage node refuses a fence: " + std::string(error.message())}, false);
  }
  return ok_status();
}

Status Core::Impl::finish_loss_acceptance(NodeId node, uint64_t sequence, Status outcome) {
  const auto at = losses_.find(node);
  if (at == losses_.end() || at->second.sequence != sequence) return ok_status();  // a repeated reply
  const auto done = std::move(at->second.done);
  losses_.erase(at);
  if (outcome.ok()) {
    Env::probe("manager.node.loss_accepted");
    catalog_.finish_loss(node);
    outbox_.log({LogLevel::kInfo,
                 "node.loss_accepted",
                 "storage node " + std::to_string(node.value) + " serves its shards, empty: the loss was accepted",
                 {{"node", node.value}}});
  }
  when_stored([done, outcome = std::move(outcome)](const Status& stored) { done(stored.ok() ? outcome : stored); });
  return ok_status();
}

void Core::Impl::accept_loss(NodeId id, std::function<void(Status)> done) {
  const std::string who = "storage node " + std::to_string(id.value);
  if (!durable_status_.ok()) return done(durable_status_);
  if (!identity_.stale().ok()) return done(identity_.stale());
  if (!catalog_.known(id)) return done({StatusCode::kInvalidArgument, who + " does not exist"});
  switch (catalog_.node(id).info.state) {
    case wire::NodeState::kLive:
      return done({StatusCode::kInvalidArgument, who + " is live and has lost nothing"});
    case wire::NodeState::kUnreachable:
      return done({StatusCode::kUnavailable, who + " at " + catalog_.node(id).info.address +
                                                 " cannot be reached: start it again first, then accept the loss"});
    case wire::NodeState::kLost:
      break;
  }
  Peer* peer = peer_of(id);
  if (peer == nullptr || losses_.contains(id)) {
    return done(
        {StatusCode::kUnavailable,
         who + (peer == nullptr ? " is not connected at the moment" : " is already being told of the accepted loss") +
             "; try again"});
  }
  losses_[id] = {0, std::move(done)};
  process_loss_acceptances();
  run_deferred_work();
}

/// Decides the accepted losses of nodes whose earlier incarnations hold no lease any more. Before that, an earlier
/// process could still execute writes of transactions that begin after the decision. The decision is stored before
/// the node hears of it: otherwise a restart could count records as lost that the node has accepted since then.
void Core::Impl::process_loss_acceptances() {
  for (auto& [id, loss] : losses_) {
    Peer* peer = peer_of(id);
    if (loss.sequence != 0 || peer == nullptr || !leases_.earlier_over(id, now_ns_)) continue;
    // Any id given out so far may have written lost records; a commit of it would be partial (R9).
    uncommittable_up_to_ = transactions_.last_id();
    catalog_.accept_loss(id);
    changes_.mark_indexes_damaged();
    loss.sequence = next_sequence();
    Buffer message;
    wire::encode_message(wire::AcceptLoss{}, loss.sequence, message);
    // Sessions that have ended by now have no intents at the new process, which has served no request. Sessions that
    // end later may have some.
    when_stored([this, node = id](const Status& stored) {
      if (stored.ok()) mark_node_recovered(node);
    });
    send_when_stored(peer->id, std::move(message));
  }
}

/// A node that loses its lease loses its connection too: only a registration brings it all changes that it has
/// missed.
void Core::Impl::expire_nodes(uint64_t now_ns) {
  for (const auto& [node, registering] : pending_registrations_)
    leases_.renewed(node, now_ns);  // these nodes wait for the disk of the commit manager
  for (const NodeId id : leases_.expire(now_ns)) {
    Env::probe("manager.node.lease_expired");
    ++counts_.node_leases_expired;
    catalog_.node_unreachable(id);
    synced_nodes_.erase(id);
    changes_.stop_awaiting(id);
    outbox_.log({LogLevel::kWarning,
                 "node.unreachable",
                 "storage node " + std::to_string(id.value) + " is unreachable: its lease ran out",
                 {{"node", id.value}}});
    if (const auto loss = losses_.find(id); loss != losses_.end()) {
      const auto done = std::move(loss->second.done);
      losses_.erase(loss);
      done({StatusCode::kUnknownOutcome, "storage node " + std::to_string(id.value) +
                                             " cannot be reached any more; check its state when it is back"});
    }
    if (Peer* peer = peer_of(id); peer != nullptr) {
      close_later(*peer, {StatusCode::kUnavailable, "its lease ran out; register again"}, false);
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
