// The numbers of the messages.
#pragma once

#include <cstdint>
#include <string_view>

namespace loam::wire {

/// Version of the messages in common/wire, the record layout and the shard hash. The handshake of a connection
/// refuses a peer of another version with kUnsupportedVersion.
inline constexpr uint16_t kProtocolVersion = 10;

/// The type of a message. Numbers are never reused. An odd number is the reply to the even number before it. One-way
/// messages have even numbers.
enum class Opcode : uint8_t {
  // any → any
  kError = 1,  ///< the reply to any request that failed as a whole

  // any → any server
  kPing = 2,
  kPong = 3,

  // client → storage node
  kAttach = 10,
  kAttachReply = 11,
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
  kScanChunk = 24,     ///< storage node → client; any number of them precede kScanDone
  kScanCredit = 26,    ///< client → storage node, one-way
  kScanCancel = 28,    ///< client → storage node, one-way; kScanDone follows
  kScanProgress = 30,  ///< storage node → client, one-way, at the interval that the scan names
  kIntents = 32,       ///< from the recoverer of the commit manager
  kIntentsReply = 33,

  // client → commit manager
  kOpenSession = 40,
  kOpenSessionReply = 41,
  kBegin = 42,
  kBeginReply = 43,
  kComplete = 44,
  kCompleteReply = 45,
  kReleaseSnapshots = 48,  ///< one-way
  kGetCatalog = 50,
  kGetCatalogReply = 51,
  kCreateTable = 52,
  kCreateTableReply = 53,
  kDropTable = 54,
  kDropTableReply = 55,
  kCloseSession = 56,  ///< orderly end of a session, after the client has completed all its transactions
  kCloseSessionReply = 57,
  kRenewSession = 58,
  kRenewSessionReply = 59,
  kGetOutcomes = 60,
  kGetOutcomesReply = 61,
  kFinishIndex = 62,
  kFinishIndexReply = 63,
  kRenameTable = 64,
  kRenameTableReply = 65,
  kAddField = 66,
  kAddFieldReply = 67,

  // storage node → commit manager
  kRegisterNode = 70,
  kRegisterNodeReply = 71,
  kRenewNode = 72,
  kRenewNodeReply = 73,

  // commit manager → storage node
  kPublish = 80,
  kPublishReply = 81,
  kInstallTable = 82,
  kInstallTableReply = 83,
  kRemoveTable = 84,
  kRemoveTableReply = 85,
  kFence = 86,
  kFenceReply = 87,
  kAcceptLoss = 88,
  kAcceptLossReply = 89,
};

/// Whether a message is one of several replies to a request and not the last of them.
constexpr bool more_follow(Opcode opcode) { return opcode == Opcode::kScanChunk || opcode == Opcode::kScanProgress; }

/// The name of an opcode, such as "kBegin". Empty for a number that is no opcode.
std::string_view to_string(Opcode opcode);

}  // namespace loam::wire
