// The envelope and the names of the opcodes. The codec of the messages is a template in message.h.

#include "common/wire/message.h"

namespace loam::wire {

Status decode_envelope(ByteReader& reader, Envelope& envelope) {
  envelope.opcode = reader.get<Opcode>();
  envelope.sequence = reader.get_varint();
  LOAM_RETURN_IF_ERROR(reader.status("message envelope"));
  // An unknown opcode must not reach the switch statements of the receivers, because it comes from the network.
  if (to_string(envelope.opcode).empty()) {
    return {StatusCode::kMalformed, "unknown opcode " + std::to_string(static_cast<int>(envelope.opcode))};
  }
  return ok_status();
}

std::string_view to_string(Opcode opcode) {
  // Without a default, the compiler reports an opcode that has no name here. decode_envelope() would refuse it.
  switch (opcode) {
      // clang-format off
    case Opcode::kError: return "kError";
    case Opcode::kPing: return "kPing";
    case Opcode::kPong: return "kPong";
    case Opcode::kAttach: return "kAttach";
    case Opcode::kAttachReply: return "kAttachReply";
    case Opcode::kRead: return "kRead";
    case Opcode::kReadReply: return "kReadReply";
    case Opcode::kWrite: return "kWrite";
    case Opcode::kWriteReply: return "kWriteReply";
    case Opcode::kRevert: return "kRevert";
    case Opcode::kRevertReply: return "kRevertReply";
    case Opcode::kPlainRead: return "kPlainRead";
    case Opcode::kPlainReadReply: return "kPlainReadReply";
    case Opcode::kPlainWrite: return "kPlainWrite";
    case Opcode::kPlainWriteReply: return "kPlainWriteReply";
    case Opcode::kScan: return "kScan";
    case Opcode::kScanDone: return "kScanDone";
    case Opcode::kScanChunk: return "kScanChunk";
    case Opcode::kScanCredit: return "kScanCredit";
    case Opcode::kScanCancel: return "kScanCancel";
    case Opcode::kScanProgress: return "kScanProgress";
    case Opcode::kIntents: return "kIntents";
    case Opcode::kIntentsReply: return "kIntentsReply";
    case Opcode::kOpenSession: return "kOpenSession";
    case Opcode::kOpenSessionReply: return "kOpenSessionReply";
    case Opcode::kBegin: return "kBegin";
    case Opcode::kBeginReply: return "kBeginReply";
    case Opcode::kComplete: return "kComplete";
    case Opcode::kCompleteReply: return "kCompleteReply";
    case Opcode::kReleaseSnapshots: return "kReleaseSnapshots";
    case Opcode::kGetCatalog: return "kGetCatalog";
    case Opcode::kGetCatalogReply: return "kGetCatalogReply";
    case Opcode::kCreateTable: return "kCreateTable";
    case Opcode::kCreateTableReply: return "kCreateTableReply";
    case Opcode::kDropTable: return "kDropTable";
    case Opcode::kDropTableReply: return "kDropTableReply";
    case Opcode::kFinishIndex: return "kFinishIndex";
    case Opcode::kFinishIndexReply: return "kFinishIndexReply";
    case Opcode::kRenameTable: return "kRenameTable";
    case Opcode::kRenameTableReply: return "kRenameTableReply";
    case Opcode::kAddField: return "kAddField";
    case Opcode::kAddFieldReply: return "kAddFieldReply";
    case Opcode::kCloseSession: return "kCloseSession";
    case Opcode::kCloseSessionReply: return "kCloseSessionReply";
    case Opcode::kRenewSession: return "kRenewSession";
    case Opcode::kRenewSessionReply: return "kRenewSessionReply";
    case Opcode::kGetOutcomes: return "kGetOutcomes";
    case Opcode::kGetOutcomesReply: return "kGetOutcomesReply";
    case Opcode::kRegisterNode: return "kRegisterNode";
    case Opcode::kRegisterNodeReply: return "kRegisterNodeReply";
    case Opcode::kRenewNode: return "kRenewNode";
    case Opcode::kRenewNodeReply: return "kRenewNodeReply";
    case Opcode::kPublish: return "kPublish";
    case Opcode::kPublishReply: return "kPublishReply";
    case Opcode::kInstallTable: return "kInstallTable";
    case Opcode::kInstallTableReply: return "kInstallTableReply";
    case Opcode::kRemoveTable: return "kRemoveTable";
    case Opcode::kRemoveTableReply: return "kRemoveTableReply";
    case Opcode::kFence: return "kFence";
    case Opcode::kFenceReply: return "kFenceReply";
    case Opcode::kAcceptLoss: return "kAcceptLoss";
    case Opcode::kAcceptLossReply: return "kAcceptLossReply";
      // clang-format on
  }
  return {};
}

}  // namespace loam::wire
