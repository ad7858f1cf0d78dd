#include "storage-node/src/request/manager_link.h"

#include <utility>

#include "common/wire/storage.h"

namespace loam::storage {

using wire::Opcode;

namespace {
constexpr uint64_t kRegisterSequence = 1;
}

ManagerLink::ManagerLink(Registry& registry, EpochThread& thread, NodeIdentity identity,
                         std::function<void(Bytes)> send)
    : registry_(registry), thread_(thread), identity_(std::move(identity)), send_(std::move(send)) {}

void ManagerLink::connected() {
  send(kRegisterSequence, wire::RegisterNode{identity_.address, identity_.admin_address, identity_.capacity_bytes});
}

Status ManagerLink::received(Bytes message) {
  ByteReader reader(message);
  wire::Envelope envelope;
  LOAM_RETURN_IF_ERROR(wire::decode_envelope(reader, envelope));
  if (!registered_ && envelope.opcode != Opcode::kNodeRegistered && envelope.opcode != Opcode::kError) {
    return {StatusCode::kMalformed, "the commit manager sent " + std::string(wire::to_string(envelope.opcode)) +
                                        " before it answered the registration"};
  }
  switch (envelope.opcode) {
    case Opcode::kNodeRegistered:
      return apply_registered(reader);
    case Opcode::kPublish: {
      wire::Publish publish;
      LOAM_RETURN_IF_ERROR(wire::decode_body(reader, publish));
      registry_.publish(thread_, std::move(publish.publication));
      return ok_status();
    }
    case Opcode::kInstallTable: {
      wire::InstallTable install;
      LOAM_RETURN_IF_ERROR(wire::decode_body(reader, install));
      Status installed = registry_.install(thread_, install.table, install.shards);
      if (installed.ok()) {
        answer_when_seen(envelope.sequence, Opcode::kTableInstalled);
      } else {
        send(envelope.sequence, wire::Error{std::move(installed)});
      }
      return ok_status();
    }
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
      return error.status;
    }
    default:
      return {StatusCode::kMalformed, "a storage node does not take " + std::string(wire::to_string(envelope.opcode)) +
                                          " from the commit manager"};
  }
}

Status ManagerLink::apply_registered(ByteReader& reader) {
  wire::NodeRegistered answer;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, answer));
  if (registered_) return {StatusCode::kMalformed, "the commit manager answered the registration twice"};
  LOAM_RETURN_IF_ERROR(
      registry_.enter_service(thread_, answer.node, answer.incarnation, answer.catalog, answer.publication));
  registered_ = true;
  return ok_status();
}

bool ManagerLink::step() {
  if (pending_.empty()) return false;
  registry_.epochs().advance();
  size_t due = 0;
  while (due < pending_.size() && registry_.epochs().passed(pending_[due].epoch)) {
    const PendingAnswer& answer = pending_[due++];
    if (answer.opcode == Opcode::kTableInstalled) {
      send(answer.sequence, wire::TableInstalled{});
    } else {
      send(answer.sequence, wire::TableRemoved{});
    }
  }
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(due));
  return !pending_.empty();
}

void ManagerLink::answer_when_seen(uint64_t sequence, Opcode opcode) {
  const EpochGuard guard(thread_);
  pending_.push_back({registry_.epochs().current(), sequence, opcode});
}

template <wire::Message M>
void ManagerLink::send(uint64_t sequence, const M& message) {
  buffer_.clear();
  wire::encode_message(message, sequence, buffer_);
  send_(buffer_);
}

}  // namespace loam::storage
