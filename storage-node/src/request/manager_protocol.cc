// The transitions of the protocol: one function for each message of the commit manager, and step() for the work that
// time or other threads make due. control_thread.cc drives it.
#include "storage-node/src/request/manager_protocol.h"

#include <utility>

#include "common/base/env.h"
#include "common/base/thread.h"
#include "common/wire/storage.h"

namespace loam::storage {

using wire::Opcode;

namespace {

/// Number of renewals within the length of the lease: three may be lost before the lease runs out.
constexpr uint64_t kRenewalsPerLease = 4;

}  // namespace

ManagerProtocol::ManagerProtocol(Registry& registry, SessionTable& sessions, EpochThread& thread, NodeIdentity identity,
                                 std::function<void(Bytes)> send)
    : registry_(registry),
      sessions_(sessions),
      thread_(thread),
      identity_(std::move(identity)),
      send_(std::move(send)),
      start_(entropy() | 1) {}

void ManagerProtocol::connected(uint64_t now_ns) {
  request_sequence_ = registered_sequence_ = ++sequence_;
  request_sent_ns_ = now_ns;
  // The incarnation is 0 until the first registration is answered. `start_` lets the commit manager recognize a
  // registration whose reply was lost.
  send(request_sequence_, wire::RegisterNode{identity_.address, identity_.admin_address, identity_.capacity_bytes,
                                             registry_.incarnation(), start_, known_});
}

void ManagerProtocol::disconnected() {
  registered_ = false;
  // The next registration brings the state of these changes and asks for a lease again. A lease in force remains in
  // force, because it depends on time alone (R9, leases of storage nodes).
  pending_.clear();
  lease_pending_ = false;
  request_sequence_ = 0;
}

Status ManagerProtocol::received(Bytes message, uint64_t now_ns) {
  ByteReader reader(message);
  wire::Envelope envelope;
  LOAM_RETURN_IF_ERROR(wire::decode_envelope(reader, envelope));
  if (!registered_ && envelope.opcode != Opcode::kRegisterNodeReply && envelope.opcode != Opcode::kError) {
    return {StatusCode::kMalformed, "the commit manager sent " + std::string(wire::to_string(envelope.opcode)) +
                                        " before it answered the registration"};
  }
  return apply(envelope, reader, now_ns);
}

Status ManagerProtocol::apply(const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns) {
  switch (envelope.opcode) {
    case Opcode::kRegisterNodeReply:
      return apply_registered(envelope.sequence, reader, now_ns);
    case Opcode::kRenewNodeReply:
      return apply_renewed(envelope.sequence, reader, now_ns);
    case Opcode::kPublish:
      return apply_publish(envelope.sequence, reader);
    case Opcode::kFence: {
      wire::Fence fence;
      LOAM_RETURN_IF_ERROR(wire::decode_body(reader, fence));
      LOAM_RETURN_IF_ERROR(fence.fences.check());
      // New batches refuse the sessions as soon as the fences are installed. Older batches may still write, so the
      // reply waits for the barrier (R7, fence barrier).
      Env::pause_point("node.fence.received");
      registry_.fence(thread_, fence.fences);
      ack_after_barrier(envelope.sequence, Opcode::kFenceReply, std::move(fence.fences));
      return ok_status();
    }
    case Opcode::kAcceptLoss: {
      wire::AcceptLoss accept;
      LOAM_RETURN_IF_ERROR(wire::decode_body(reader, accept));
      registry_.accept_loss(thread_);
      ack_after_barrier(envelope.sequence, Opcode::kAcceptLossReply);
      return ok_status();
    }
    case Opcode::kInstallTable:
      return apply_install(envelope.sequence, reader);
    case Opcode::kRemoveTable: {
      wire::RemoveTable remove;
      LOAM_RETURN_IF_ERROR(wire::decode_body(reader, remove));
      registry_.remove(thread_, remove.table);
      ack_after_barrier(envelope.sequence, Opcode::kRemoveTableReply);
      return ok_status();
    }
    case Opcode::kError: {
      wire::Error error;
      LOAM_RETURN_IF_ERROR(wire::decode_body(reader, error));
      if (error.status.ok()) return {StatusCode::kMalformed, "the commit manager sent kError with the code kOk"};
      return error.status;
    }
    default:
      return {StatusCode::kMalformed, "a storage node does not take " + std::string(wire::to_string(envelope.opcode)) +
                                          " from the commit manager"};
  }
}

Status ManagerProtocol::apply_registered(uint64_t sequence, ByteReader& reader, uint64_t now_ns) {
  wire::RegisterNodeReply answer;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, answer));
  if (sequence != registered_sequence_) {
    return {StatusCode::kMalformed, "the commit manager answers a registration that was not sent"};
  }
  if (registered_) return ok_status();  // a repeated reply
  // Check the history before anything of the reply is applied (R10, cluster identity and incarnations).
  LOAM_RETURN_IF_ERROR(answer.history.validate());
  if (answer.history.epochs.back().number != answer.manager_epoch) {
    return {StatusCode::kMalformed, "the history of the commit manager does not end with its own epoch"};
  }
  LOAM_RETURN_IF_ERROR(answer.history.contains(known_));
  // Apply catalog, fences and publication before the lease, so that no request is served under the new lease with an
  // older state (R9, leases of storage nodes).
  const bool again = registry_.in_service();
  LOAM_RETURN_IF_ERROR(registry_.enter_service(thread_, answer));
  known_ = answer.history.latest();
  registered_ = true;
  request_sequence_ = 0;
  lease_ns_ = answer.lease_ns;
  // The lease runs from the moment when the request was sent (R9, leases of storage nodes).
  const uint64_t until_ns = lease_ns_ == 0 ? UINT64_MAX : request_sent_ns_ + lease_ns_;
  if (!again) {
    registry_.grant_lease(until_ns);  // no barrier: no batch of this process has been served yet
    return ok_status();
  }
  // Drop the fenced sessions, and grant a lease that had run out, behind the barrier (R7, fence barrier).
  ack_after_barrier(0, Opcode::kRegisterNodeReply, std::move(answer.fences));
  accept_lease(until_ns, now_ns);
  return ok_status();
}

Status ManagerProtocol::apply_renewed(uint64_t sequence, ByteReader& reader, uint64_t now_ns) {
  wire::RenewNodeReply renewed;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, renewed));
  if (sequence > sequence_) return {StatusCode::kMalformed, "the commit manager answers a renewal that was not sent"};
  if (sequence != request_sequence_) return ok_status();  // a repeated reply
  // The storage node reports this point when it registers again. A commit manager that lacks it works on an older
  // copy of its folder (R10, cluster identity and incarnations).
  known_.state = std::max(known_.state, renewed.state);
  known_.log = std::max(known_.log, renewed.log);
  request_sequence_ = 0;
  accept_lease(request_sent_ns_ + lease_ns_, now_ns);
  return ok_status();
}

Status ManagerProtocol::apply_publish(uint64_t sequence, ByteReader& reader) {
  wire::Publish publish;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, publish));
  known_.state = std::max(known_.state, publish.state);
  known_.log = std::max(known_.log, publish.log);
  const wire::PublishReply installed{publish.publication.cm_epoch, publish.publication.number};
  registry_.publish(thread_, std::move(publish.publication));
  sweep_due_ = true;
  // The registry ignores a publication that is not newer. Acknowledge only the one that requests work with (R5).
  const EpochGuard guard(thread_);
  const Publication& present = registry_.publication();
  if (present.cm_epoch != installed.epoch || present.number != installed.number) return ok_status();
  ack_after_barrier(sequence, Opcode::kPublishReply, {}, installed);
  return ok_status();
}

Status ManagerProtocol::apply_install(uint64_t sequence, ByteReader& reader) {
  wire::InstallTable install;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, install));
  Status installed = registry_.install(thread_, install.table, install.shards);
  if (installed.ok()) {
    ack_after_barrier(sequence, Opcode::kInstallTableReply);
  } else {
    send(sequence, wire::Error{std::move(installed)});
  }
  return ok_status();
}

void ManagerProtocol::accept_lease(uint64_t until_ns, uint64_t now_ns) {
  lease_until_ns_ = until_ns;
  if (lease_pending_) return;  // the barrier is under way; acknowledge() grants the newest end
  if (registry_.lease_holds(now_ns)) {
    // No barrier: the lease has not run out, so the commit manager has not counted this storage node as fenced.
    registry_.grant_lease(until_ns);
    return;
  }
  // The lease had run out, so the commit manager may count this storage node as fenced. A batch that was paused in
  // its middle must end before requests are served again (R7).
  Env::probe("node.lease.waits_at_barrier");
  lease_pending_ = true;
  ack_after_barrier(0, Opcode::kRenewNodeReply);
}

Result<bool> ManagerProtocol::step(uint64_t now_ns) {
  // 1. Give up a connection on which a registration or renewal has had no reply for request_timeout_ns(). The first
  //    registration has no time-out (next_step_ns()).
  if (request_sequence_ != 0 && now_ns - request_sent_ns_ > request_timeout_ns() && registry_.in_service()) {
    Env::probe("node.manager.silent");
    return Status(StatusCode::kTimeout, "the commit manager does not answer");
  }
  // 2. Renew the lease. One request is under way at a time, so `request_sent_ns_` belongs to the reply that arrives.
  if (registered_ && lease_ns_ != 0 && request_sequence_ == 0 &&
      now_ns - request_sent_ns_ >= lease_ns_ / kRenewalsPerLease) {
    request_sequence_ = ++sequence_;
    request_sent_ns_ = now_ns;
    send(request_sequence_, wire::RenewNode{});
    registry_.create_deferred_tables(thread_);  // at each renewal: memory may have become free
  }
  // 3. Acknowledge the changes whose barrier has passed, and continue the sweep of intents.
  ack_passed();
  const bool sweeping = sweep_intents(now_ns);
  return sweeping || !pending_.empty();
}

void ManagerProtocol::ack_passed() {
  if (pending_.empty()) return;
  // If no thread is inside an older batch, the whole grace period passes in this loop.
  for (uint64_t i = 0; i < EpochDomain::kGracePeriodEpochs && registry_.epochs().advance(); ++i) {
  }
  const auto due = std::ranges::find_if_not(
      pending_, [this](const PendingAck& pending) { return registry_.epochs().passed(pending.epoch); });
  // An acknowledgement of a publication covers the earlier ones, so the newest one that is due suffices.
  const auto overtaken = [due](auto at) {
    return at->opcode == Opcode::kPublishReply &&
           std::any_of(at + 1, due, [](const PendingAck& p) { return p.opcode == Opcode::kPublishReply; });
  };
  for (auto at = pending_.begin(); at != due; ++at) {
    if (!overtaken(at)) acknowledge(*at);
  }
  pending_.erase(pending_.begin(), due);
}

bool ManagerProtocol::sweep_intents(uint64_t now_ns) {
  if (!sweeping_) {
    // Only a newer publication covers further intents.
    if (!sweep_due_ || now_ns - swept_ns_ < kMinIntentSweepIntervalNs) return false;
    sweeping_ = true;
    sweep_due_ = false;
    swept_ns_ = now_ns;
  }
  const EpochGuard guard(thread_);
  sweeping_ = sessions_.sweep(registry_.publication());
  return sweeping_;
}

uint64_t ManagerProtocol::next_step_ns() const {
  // The first registration has no time-out: the commit manager may wait for its disk or for other storage nodes.
  if (request_sequence_ != 0) return registry_.in_service() ? request_sent_ns_ + request_timeout_ns() : UINT64_MAX;
  if (!registered_ || lease_ns_ == 0) return UINT64_MAX;
  return request_sent_ns_ + lease_ns_ / kRenewalsPerLease;
}

void ManagerProtocol::ack_after_barrier(uint64_t sequence, Opcode opcode, wire::FenceSet fences,
                                        wire::PublishReply publication) {
  // The caller has installed the change. A batch that did not see it began in this epoch or before, so the barrier is
  // the end of this epoch.
  const EpochGuard guard(thread_);
  pending_.push_back({registry_.epochs().current(), sequence, opcode, std::move(fences), publication});
}

void ManagerProtocol::acknowledge(const PendingAck& due) {
  switch (due.opcode) {
    case Opcode::kInstallTableReply:
      return send(due.sequence, wire::InstallTableReply{});
    case Opcode::kRemoveTableReply:
      return send(due.sequence, wire::RemoveTableReply{});
    case Opcode::kAcceptLossReply:
      return send(due.sequence, wire::AcceptLossReply{});
    case Opcode::kPublishReply:
      return send(due.sequence, due.publication);
    case Opcode::kRenewNodeReply:
      // Every batch that was under way when the lease arrived has ended.
      lease_pending_ = false;
      Env::probe("node.lease.taken_up_again");
      return registry_.grant_lease(lease_until_ns_);
    case Opcode::kRegisterNodeReply:
      return sessions_.drop_fenced(due.fences);
    default:
      sessions_.drop_fenced(due.fences);  // their last batches have ended
      Env::pause_point("node.fence.installed");
      return send(due.sequence, wire::FenceReply{});
  }
}

template <wire::Message M>
void ManagerProtocol::send(uint64_t sequence, const M& message) {
  buffer_.clear();
  wire::encode_message(message, sequence, buffer_);
  send_(buffer_);
}

}  // namespace loam::storage
