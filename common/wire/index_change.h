// What a transaction does to the indexes of what it writes.
#pragma once

#include <string>

#include "common/base/ids.h"

namespace loam::wire {

/// A record gets a value that an index is of, or loses it (R27). Written into the undo record before any write, so that
/// whoever undoes it needs neither the catalog nor the record. Value type.
struct IndexChange {
  TableId index;        ///< the table of the tree's nodes
  Key record;           ///< whose value it is
  bool take = false;    ///< it loses the value; otherwise it gets it
  bool shared = false;  ///< all records with the value have their entries under one key of the tree (R28)
  std::string key;      ///< of the tree

  bool operator==(const IndexChange&) const = default;
};

}  // namespace loam::wire
