// Kinds of operations whose latencies are told apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/wire/opcode.h"

namespace loam::latency {

/// A kind of operation.
enum class OperationKind : uint8_t {
  kRead,        ///< reads of a transactional table
  kWrite,       ///< writes of a transactional table
  kRevert,      ///< removals of the versions of an aborted transaction
  kPlainRead,   ///< reads of a non-transactional table
  kPlainWrite,  ///< writes of a non-transactional table
  kScan,        ///< scans, from arrival to end
  kBegin,       ///< begins of transactions and snapshots
  kComplete,    ///< commits and aborts
  kOther,       ///< all other requests
};
/// Number of kinds.
inline constexpr size_t kOperationKinds = 9;

/// Returns the name of a kind: lower case, words joined by underscores.
std::string_view to_string(OperationKind kind);

/// Returns the kind of a request, or of the reply to it.
constexpr OperationKind kind_of(wire::Opcode opcode) {
  using wire::Opcode;
  switch (opcode) {
    case Opcode::kRead:
    case Opcode::kReadReply:
      return OperationKind::kRead;
    case Opcode::kWrite:
    case Opcode::kWriteReply:
      return OperationKind::kWrite;
    case Opcode::kRevert:
    case Opcode::kRevertReply:
      return OperationKind::kRevert;
    case Opcode::kPlainRead:
    case Opcode::kPlainReadReply:
      return OperationKind::kPlainRead;
    case Opcode::kPlainWrite:
    case Opcode::kPlainWriteReply:
      return OperationKind::kPlainWrite;
    case Opcode::kScan:
    case Opcode::kScanDone:
      return OperationKind::kScan;
    case Opcode::kBegin:
    case Opcode::kBeginReply:
      return OperationKind::kBegin;
    case Opcode::kComplete:
    case Opcode::kCompleteReply:
      return OperationKind::kComplete;
    default:
      return OperationKind::kOther;
  }
}

}  // namespace loam::latency
