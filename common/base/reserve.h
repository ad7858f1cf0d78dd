// Who may take how much of a storage node's memory [R6].
#pragma once

#include <cstddef>
#include <cstdint>

namespace loam {

/// Who asks for memory, lowest claim first (R6): a class may fill a node only up to its own limit, so that removes go
/// through when writes are refused, undo when removes are, and the compactor always.
enum class Reserve : uint8_t {
  kWrite = 0,      ///< inserts, updates, growth of index arrays on their behalf
  kRemove = 1,     ///< removes, and the index entries that they end; merges of a tree's nodes that have begun
  kUndo = 2,       ///< undo of index entries
  kCompactor = 3,  ///< rewriting pages, so that memory comes free
};
inline constexpr size_t kReserveClasses = 4;

}  // namespace loam
