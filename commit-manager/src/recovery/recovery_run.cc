#include "commit-manager/src/recovery/recovery_run.h"

#include <string>
#include <utility>
#include <variant>

#include "commit-manager/src/recovery/recovery_engine.h"

namespace loam::commit {

void RecoveryRun::start() {
  machine_.start();
  pump();
}

void RecoveryRun::acknowledged() {
  machine_.acknowledged();
  pump();
}

void RecoveryRun::indexes_undone(const Status& status) {
  machine_.on_index_undone(status);
  pump();
}

void RecoveryRun::pump() {
  RecoveryMessage message;
  while (machine_.next(message)) {
    if (Status sent = send(message); !sent.ok()) machine_.on_failure(message.token, sent);
  }
  if (machine_.reporting() && !std::exchange(reported_, true)) engine_.run_reports(*this);
  if (machine_.end() == RecoveryMachine::End::kPostponed && !std::exchange(blocked_, true)) engine_.run_blocked(*this);
  if (machine_.over() && !std::exchange(ended_, true)) engine_.run_ended(*this);
}

Status RecoveryRun::send(const RecoveryMessage& message) {
  if (const auto* undo = std::get_if<IndexUndo>(&message.message)) return engine_.undo_indexes(*undo);
  LOAM_ASSIGN_OR_RETURN(rpc::Channel* const channel, engine_.channel(message.node));
  return std::visit(
      [&](const auto& body) -> Status {
        if constexpr (wire::Message<std::decay_t<decltype(body)>>) {
          return channel->request(body, this, message.token, engine_.request_deadline_ns()).status();
        } else {
          return ok_status();  // no message: above
        }
      },
      message.message);
}

Status RecoveryRun::on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  switch (opcode) {
    case wire::Opcode::kPlainReadReply:
      LOAM_RETURN_IF_ERROR(wire::decode_body(body, read_reply_));
      machine_.on_read(read_reply_.results);
      break;
    case wire::Opcode::kPlainWriteReply:
      LOAM_RETURN_IF_ERROR(wire::decode_body(body, write_reply_));
      machine_.on_write(write_reply_.results);
      break;
    case wire::Opcode::kRevertReply:
      LOAM_RETURN_IF_ERROR(wire::decode_body(body, revert_reply_));
      machine_.on_revert(static_cast<uint32_t>(token), revert_reply_.results);
      break;
    default:
      return rpc::unexpected_reply(opcode);
  }
  pump();
  return ok_status();
}

void RecoveryRun::on_failure(uint64_t token, const Status& status, rpc::Executed) {
  machine_.on_failure(static_cast<uint32_t>(token), node_failure(status));
  pump();
}

}  // namespace loam::commit
