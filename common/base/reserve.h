// Classes of memory requests at a storage node, each with its own limit (R6, room before the claim).
#pragma once

#include <cstddef>
#include <cstdint>

namespace loam {

/// The purpose of a memory request, from the lowest limit to the highest (R6). Each class may fill the memory of a
/// storage node up to its own limit only. So removes still succeed when writes are refused, undo succeeds when
/// removes are refused, and the compactor always finds memory.
enum class Reserve : uint8_t {
  kWrite = 0,      ///< inserts, updates, and the growth of index arrays that they cause
  kRemove = 1,     ///< removes, the index entries that removes end, and merges of tree nodes that have begun
  kUndo = 2,       ///< undo of index entries
  kCompactor = 3,  ///< the rewriting of pages, which frees memory
};
/// Number of enumerators of Reserve.
inline constexpr size_t kReserveClasses = 4;

}  // namespace loam
