#include "storage-node/src/request/manager_link.h"

#include <utility>

#include "common/base/env.h"
#include "common/base/thread.h"
#include "common/wire/storage.h"

namespace loam::storage {

using wire::Opcode;

namespace {

/// Number of times that the node renews its lease within the lease's length.
constexpr uint64_t kRenewalsPerLease = 4;

}  // namespace

ManagerLink::ManagerLink(Registry& registry, SessionTable& sessions, EpochThread& thread, NodeIdentity identity,
                         std::function<void(Bytes)> send)
    : registry_(registry),
      sessions_(sessions),
      thread_(thread),
      identity_(std::move(identity)),
      send_(std::move(send)),
      start_(entropy() | 1) {}

void ManagerLink::connected(uint64_t now_ns) {
  asked_sequence_ = registered_sequence_ = ++sequence_;
  asked_ns_ = now_ns;
  // Incarnation 0 until the first registration is answered.
  send(asked_sequence_, wire::RegisterNode{identity_.address, identity_.admin_address, identity_.capacity_bytes,
                                           registry_.incarnation(), start_, known_});
}

void ManagerLink::disconnected() {
  registered_ = false;
  pending_.clear();
  lease_waits_ = false;
  asked_sequence_ = 0;
}

Status ManagerLink::received(Bytes message, uint64_t now_ns) {
  ByteReader reader(message);
  wire::Envelope envelope;
  LOAM_RETURN_IF_ERROR(wire::decode_envelope(reader, envelope));
  if (!registered_ && envelope.opcode != Opcode::kNodeRegistered && envelope.opcode != Opcode::kError) {
    return {StatusCode::kMalformed, "the commit manager sent " + std::string(wire::to_string(envelope.opcode)) +
                                        " before it answered the registration"};
  }
  return apply(envelope, reader, now_ns);
}

Status ManagerLink::apply(const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns) {
  switch (envelope.opcode) {
    case Opcode::kNodeRegistered:
      return apply_registered(envelope.sequence, reader, now_ns);
    case Opcode::kNodeRenewed:
      return apply_renewed(envelope.sequence, reader, now_ns);
    case Opcode::kPublish:
      return apply_publish(envelope.sequence, reader);
    case Opcode::kFence: {
      wire::Fence fence;
      LOAM_RETURN_IF_ERROR(wire::decode_body(reader, fence));
      LOAM_RETURN_IF_ERROR(fence.fences.check());
      Env::pause_point("node.fence.received");
      registry_.fence(thread_, fence.fences);
      answer_when_seen(envelope.sequence, Opcode::kFenceInstalled, std::move(fence.fences));
      return ok_status();
    }
    case Opcode::kAcceptLoss: {
      wire::AcceptLoss accept;
      LOAM_RETURN_IF_ERROR(wire::decode_body(reader, accept));
      registry_.accept_loss(thread_);
      answer_when_seen(envelope.sequence, Opcode::kLossAccepted);
      return ok_status();
    }
    case Opcode::kInstallTable:
      return apply_install(envelope.sequence, reader);
    case Opcode::kRemoveTable: {
      wire::RemoveTable remove;
      LOAM_RETURN_IF_ERROR(wire::decode_body(reader, remove));
      registry_.remove(thread_, remove.table);
      answer_when_seen(envelope.sequence, Opcode::kTableRemoved);
      return ok_status();
    }
    case Opcode::kError: {
      wire::Error error;
      LOAM_RETURN_IF_ERROR(wire::decode_body(reader, error));
      if (error.status.ok()) return {StatusCode::kMalformed, "the commit manager sent an error that is none"};
      return error.status;
    }
    default:
      return {StatusCode::kMalformed, "a storage node does not take " + std::string(wire::to_string(envelope.opcode)) +
                                          " from the commit manager"};
  }
}

Status ManagerLink::apply_registered(uint64_t sequence, ByteReader& reader, uint64_t now_ns) {
  wire::NodeRegistered answer;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, answer));
  if (sequence != registered_sequence_) {
    return {StatusCode::kMalformed, "the commit manager answers a registration that it was not sent"};
  }
  if (registered_) return ok_status();  // it came twice
  LOAM_RETURN_IF_ERROR(answer.history.validate());
  if (answer.history.epochs.back().number != answer.manager_epoch) {
    return {StatusCode::kMalformed, "the commit manager shows a history of another epoch than its own"};
  }
  LOAM_RETURN_IF_ERROR(answer.history.contains(known_));
  const bool again = registry_.in_service();
  LOAM_RETURN_IF_ERROR(registry_.enter_service(thread_, answer));
  known_ = answer.history.present();
  registered_ = true;
  asked_sequence_ = 0;
  lease_ns_ = answer.lease_ns;
  const uint64_t until_ns = lease_ns_ == 0 ? UINT64_MAX : asked_ns_ + lease_ns_;
  if (!again) {
    registry_.grant_lease(until_ns);  // nothing has been executed yet
    return ok_status();
  }
  answer_when_seen(0, Opcode::kNodeRegistered, std::move(answer.fences));
  take_lease(until_ns, now_ns);
  return ok_status();
}

Status ManagerLink::apply_renewed(uint64_t sequence, ByteReader& reader, uint64_t now_ns) {
  wire::NodeRenewed renewed;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, renewed));
  if (sequence > sequence_) return {StatusCode::kMalformed, "the commit manager renews what was not asked for"};
  if (sequence != asked_sequence_) return ok_status();  // it came twice
  known_.state = std::max(known_.state, renewed.state);
  known_.log = std::max(known_.log, renewed.log);
  asked_sequence_ = 0;
  take_lease(asked_ns_ + lease_ns_, now_ns);
  return ok_status();
}

Status ManagerLink::apply_publish(uint64_t sequence, ByteReader& reader) {
  wire::Publish publish;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, publish));
  known_.state = std::max(known_.state, publish.state);
  known_.log = std::max(known_.log, publish.log);
  const wire::PublicationInstalled installed{publish.publication.cm_epoch, publish.publication.number};
  registry_.publish(thread_, std::move(publish.publication));
  sweep_due_ = true;
  const EpochGuard guard(thread_);
  const Publication& present = registry_.publication();
  if (present.cm_epoch != installed.epoch || present.number != installed.number) return ok_status();  // overtaken
  answer_when_seen(sequence, Opcode::kPublicationInstalled, {}, installed);
  return ok_status();
}

Status ManagerLink::apply_install(uint64_t sequence, ByteReader& reader) {
  wire::InstallTable install;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, install));
  Status installed = registry_.install(thread_, install.table, install.shards);
  if (installed.ok()) {
    answer_when_seen(sequence, Opcode::kTableInstalled);
  } else {
    send(sequence, wire::Error{std::move(installed)});
  }
  return ok_status();
}

void ManagerLink::take_lease(uint64_t until_ns, uint64_t now_ns) {
  lease_until_ns_ = until_ns;
  if (lease_waits_) return;
  if (registry_.lease_holds(now_ns)) {
    registry_.grant_lease(until_ns);
    return;
  }
  Env::probe("node.lease.waits_at_barrier");
  lease_waits_ = true;
  answer_when_seen(0, Opcode::kNodeRenewed);
}

Result<bool> ManagerLink::step(uint64_t now_ns) {
  if (asked_sequence_ != 0 && now_ns - asked_ns_ > patience_ns() && registry_.in_service()) {
    Env::probe("node.manager.silent");
    return Status(StatusCode::kTimeout, "it does not answer");
  }
  if (registered_ && lease_ns_ != 0 && asked_sequence_ == 0 && now_ns - asked_ns_ >= lease_ns_ / kRenewalsPerLease) {
    asked_sequence_ = ++sequence_;
    asked_ns_ = now_ns;
    send(asked_sequence_, wire::RenewNode{});
    registry_.make_waiting(thread_);
  }
  answer_seen();
  const bool sweeping = sweep_intents(now_ns);
  return sweeping || !pending_.empty();
}

void ManagerLink::answer_seen() {
  if (pending_.empty()) return;
  // While no thread is inside an older batch, all of its grace passes at once.
  for (uint64_t i = 0; i < EpochDomain::kGrace && registry_.epochs().advance(); ++i) {
  }
  const auto due = std::ranges::find_if_not(
      pending_, [this](const PendingAnswer& pending) { return registry_.epochs().passed(pending.epoch); });
  const auto overtaken = [due](auto at) {
    return at->opcode == Opcode::kPublicationInstalled &&
           std::any_of(at + 1, due, [](const PendingAnswer& p) { return p.opcode == Opcode::kPublicationInstalled; });
  };
  for (auto at = pending_.begin(); at != due; ++at) {
    if (!overtaken(at)) answer(*at);
  }
  pending_.erase(pending_.begin(), due);
}

bool ManagerLink::sweep_intents(uint64_t now_ns) {
  if (!sweeping_) {
    if (!sweep_due_ || now_ns - swept_ns_ < kIntentSweepNs) return false;
    sweeping_ = true;
    sweep_due_ = false;
    swept_ns_ = now_ns;
  }
  const EpochGuard guard(thread_);
  sweeping_ = sessions_.sweep(registry_.publication());
  return sweeping_;
}

uint64_t ManagerLink::wake_ns() const {
  // The first registration waits as long as the commit manager does, for its disk or for other nodes.
  if (asked_sequence_ != 0) return registry_.in_service() ? asked_ns_ + patience_ns() : UINT64_MAX;
  if (!registered_ || lease_ns_ == 0) return UINT64_MAX;
  return asked_ns_ + lease_ns_ / kRenewalsPerLease;
}

void ManagerLink::answer_when_seen(uint64_t sequence, Opcode opcode, wire::FenceSet fences,
                                   wire::PublicationInstalled publication) {
  const EpochGuard guard(thread_);
  pending_.push_back({registry_.epochs().current(), sequence, opcode, std::move(fences), publication});
}

void ManagerLink::answer(const PendingAnswer& due) {
  switch (due.opcode) {
    case Opcode::kTableInstalled:
      return send(due.sequence, wire::TableInstalled{});
    case Opcode::kTableRemoved:
      return send(due.sequence, wire::TableRemoved{});
    case Opcode::kLossAccepted:
      return send(due.sequence, wire::LossAccepted{});
    case Opcode::kPublicationInstalled:
      return send(due.sequence, due.publication);
    case Opcode::kNodeRenewed:
      lease_waits_ = false;
      Env::probe("node.lease.taken_up_again");
      return registry_.grant_lease(lease_until_ns_);
    case Opcode::kNodeRegistered:
      return sessions_.drop_fenced(due.fences);
    default:
      sessions_.drop_fenced(due.fences);  // their last batches have ended
      Env::pause_point("node.fence.installed");
      return send(due.sequence, wire::FenceInstalled{});
  }
}

template <wire::Message M>
void ManagerLink::send(uint64_t sequence, const M& message) {
  buffer_.clear();
  wire::encode_message(message, sequence, buffer_);
  send_(buffer_);
}

}  // namespace loam::storage
