// The changes of index entries that the writes of a transaction need.
#pragma once

#include <string>

#include "common/base/ids.h"

namespace loam::wire {

/// A record gets a value of an indexed field, or loses it (R27). The write of the tree's node that makes the change
/// carries it to the storage node as an IndexIntent, so that recovery needs neither the catalog nor the record to undo
/// it. Value type.
struct IndexChange {
  TableId index;        ///< the table of the tree's nodes
  Key record;           ///< the record that has the value
  bool take = false;    ///< it loses the value; otherwise it gets it
  bool shared = false;  ///< all records with the value have their entries under one key of the tree (R28)
  std::string key;      ///< of the tree

  bool operator==(const IndexChange&) const = default;
};

}  // namespace loam::wire
