#include "common/wire/message.h"

namespace loam::wire {

Status decode_envelope(ByteReader& reader, Envelope& envelope) {
  envelope.opcode = reader.get<Opcode>();
  envelope.sequence = reader.get_varint();
  LOAM_RETURN_IF_ERROR(reader.status("message envelope"));
  if (to_string(envelope.opcode).empty()) {
    return {StatusCode::kMalformed, "unknown opcode " + std::to_string(static_cast<int>(envelope.opcode))};
  }
  return ok_status();
}

std::string_view to_string(Opcode opcode) {
  switch (opcode) {
      // clang-format off
    case Opcode::kError: return "kError";
    case Opcode::kPing: return "kPing";
    case Opcode::kPong: return "kPong";
    case Opcode::kAttach: return "kAttach";
    case Opcode::kAttached: return "kAttached";
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
    case Opcode::kSessionOpened: return "kSessionOpened";
    case Opcode::kBegin: return "kBegin";
    case Opcode::kBegun: return "kBegun";
    case Opcode::kComplete: return "kComplete";
    case Opcode::kCompleted: return "kCompleted";
    case Opcode::kReleaseSnapshots: return "kReleaseSnapshots";
    case Opcode::kGetCatalog: return "kGetCatalog";
    case Opcode::kCatalog: return "kCatalog";
    case Opcode::kCreateTable: return "kCreateTable";
    case Opcode::kTableCreated: return "kTableCreated";
    case Opcode::kDropTable: return "kDropTable";
    case Opcode::kTableDropped: return "kTableDropped";
    case Opcode::kFinishIndex: return "kFinishIndex";
    case Opcode::kIndexFinished: return "kIndexFinished";
    case Opcode::kCloseSession: return "kCloseSession";
    case Opcode::kSessionClosed: return "kSessionClosed";
    case Opcode::kRenewSession: return "kRenewSession";
    case Opcode::kSessionRenewed: return "kSessionRenewed";
    case Opcode::kAskOutcomes: return "kAskOutcomes";
    case Opcode::kOutcomes: return "kOutcomes";
    case Opcode::kRegisterNode: return "kRegisterNode";
    case Opcode::kNodeRegistered: return "kNodeRegistered";
    case Opcode::kRenewNode: return "kRenewNode";
    case Opcode::kNodeRenewed: return "kNodeRenewed";
    case Opcode::kPublish: return "kPublish";
    case Opcode::kPublicationInstalled: return "kPublicationInstalled";
    case Opcode::kInstallTable: return "kInstallTable";
    case Opcode::kTableInstalled: return "kTableInstalled";
    case Opcode::kRemoveTable: return "kRemoveTable";
    case Opcode::kTableRemoved: return "kTableRemoved";
    case Opcode::kFence: return "kFence";
    case Opcode::kFenceInstalled: return "kFenceInstalled";
    case Opcode::kAcceptLoss: return "kAcceptLoss";
    case Opcode::kLossAccepted: return "kLossAccepted";
      // clang-format on
  }
  return {};
}

}  // namespace loam::wire
