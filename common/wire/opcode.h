// Message types.
#pragma once

#include <cstdint>
#include <string_view>

namespace loam::wire {

/// Version of everything in common/wire and of the record layout. Peers of another version are refused at connection
/// set-up with kUnsupportedVersion.
inline constexpr uint16_t kProtocolVersion = 8;

/// Numbers are never reused. Odd numbers answer the even number before them; pushes and one-way messages are even.
enum class Opcode : uint8_t {
  // any → any
  kError = 1,  ///< answers any request: a Status

  // anybody → any server
  kPing = 2,
  kPong = 3,

  // client → storage node
  kAttach = 10,
  kAttached = 11,
  kRead = 12,
  kReadReply = 13,
  kWrite = 14,
  kWriteReply = 15,
  kRevert = 16,
  kRevertReply = 17,
  kPlainRead = 18,
  kPlainReadReply = 19,
  kPlainWrite = 20,
  kPlainWriteReply = 21,
  kScan = 22,
  kScanDone = 23,
  kScanChunk = 24,     ///< storage node → client, any number before kScanDone
  kScanCredit = 26,    ///< client → storage node, one way
  kScanCancel = 28,    ///< client → storage node, one way; kScanDone follows
  kScanProgress = 30,  ///< storage node → client, one way, as often as the scan asked for it
  kIntents = 32,       ///< the commit manager's recovery asks
  kIntentsReply = 33,

  // client → commit manager
  kOpenSession = 40,
  kSessionOpened = 41,
  kBegin = 42,
  kBegun = 43,
  kComplete = 44,
  kCompleted = 45,
  kReleaseSnapshots = 48,  ///< one way
  kGetCatalog = 50,
  kCatalog = 51,
  kCreateTable = 52,
  kTableCreated = 53,
  kDropTable = 54,
  kTableDropped = 55,
  kCloseSession = 56,  ///< orderly end; open transactions must have been completed
  kSessionClosed = 57,
  kRenewSession = 58,
  kSessionRenewed = 59,
  kAskOutcomes = 60,
  kOutcomes = 61,
  kFinishIndex = 62,
  kIndexFinished = 63,

  // storage node → commit manager
  kRegisterNode = 70,
  kNodeRegistered = 71,
  kRenewNode = 72,
  kNodeRenewed = 73,

  // commit manager → storage node
  kPublish = 80,
  kPublicationInstalled = 81,
  kInstallTable = 82,
  kTableInstalled = 83,
  kRemoveTable = 84,
  kTableRemoved = 85,
  kFence = 86,
  kFenceInstalled = 87,
  kAcceptLoss = 88,
  kLossAccepted = 89,
};

/// One of several answers to a request, and not the last.
constexpr bool more_follow(Opcode opcode) { return opcode == Opcode::kScanChunk || opcode == Opcode::kScanProgress; }

/// "kBegin"; empty for a number that is no opcode.
std::string_view to_string(Opcode opcode);

}  // namespace loam::wire
