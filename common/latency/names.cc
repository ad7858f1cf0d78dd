// Names of stages and kinds, for administration and metrics.
#include <array>

#include "common/latency/operation_kind.h"
#include "common/latency/stage.h"

namespace loam::latency {

std::string_view to_string(Stage stage) {
  constexpr std::array<std::string_view, kStages> kNames = {"scheduling",   "compaction",   "memory",    "queue",
                                                            "session_lock", "index_growth", "execution", "log",
                                                            "answer",       "client",       "window",    "network"};
  return kNames[static_cast<size_t>(stage)];
}

std::string_view to_string(OperationKind kind) {
  constexpr std::array<std::string_view, kOperationKinds> kNames = {
      "read", "write", "revert", "plain_read", "plain_write", "scan", "begin", "complete", "other"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace loam::latency
