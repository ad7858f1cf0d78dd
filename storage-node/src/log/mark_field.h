// The one field of a row that can be changed where the row lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "storage-node/src/log/entry.h"

namespace loam::storage {

/// Where the mark field of a table's rows lies: an integer that is never NULL. Its new value stands in the entry's link
/// (log/entry.h), because it has to change at one instant with the version; whoever copies a row puts it in.
struct MarkField {
  uint32_t offset = 0;      ///< in the row
  uint8_t width_bytes = 0;  ///< 2, 4 or 8; 0: rows of this table have none

  bool exists() const { return width_bytes != 0; }
  /// Gives the field of a copied row its present value. Little-endian, as rows are.
  void set(std::byte* row, uint8_t mark) const {
    const uint64_t value = mark;
    std::memcpy(row + offset, &value, width_bytes);
  }
};

}  // namespace loam::storage
