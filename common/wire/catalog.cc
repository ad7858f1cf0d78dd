#include "common/wire/catalog.h"

#define XXH_INLINE_ALL
#include <array>

#include <xxhash.h>

namespace loam::wire {

uint16_t shard_of(TableId table, Key key) {
  // Clients and storage nodes compute the shard independently, so hash and seed are a part of the protocol.
  constexpr uint64_t kSeed = 0x4c6f616d53686172;  // an arbitrary number, fixed by the protocol
  const std::array<uint64_t, 2> words = {table.value, key.value};
  return static_cast<uint16_t>(XXH3_64bits_withSeed(words.data(), sizeof(words), kSeed) % kVirtualShards);
}

std::string_view to_string(IndexState state) {
  switch (state) {
    case IndexState::kBuilding:
      return "building";
    case IndexState::kReady:
      return "ready";
    case IndexState::kDamaged:
      return "damaged";
  }
  return "?";
}

std::string_view to_string(NodeState state) {
  switch (state) {
    case NodeState::kLive:
      return "live";
    case NodeState::kUnreachable:
      return "unreachable";
    case NodeState::kLost:
      return "lost";
  }
  return "unknown";
}

}  // namespace loam::wire
