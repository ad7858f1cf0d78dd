// A change of an index entry, as a write of a transaction needs it.
#pragma once

#include <string>

#include "common/base/ids.h"

namespace loam::wire {

/// A change of one index entry: a record gets or loses a value of the indexed fields (R27, index entries). The write
/// of the tree node that makes the change carries it to the storage node as an IndexIntent, so recovery can undo it
/// without the catalog and without the record. A value type.
struct IndexChange {
  TableId index;        ///< the index, that is, the table of its tree nodes
  Key record;           ///< the record to which the entry leads
  bool remove = false;  ///< whether the record loses the value; otherwise it gets the value
  bool shared = false;  ///< whether all records with this value have their entries under one key (R28, unique indexes)
  std::string key;      ///< the key of the entry in the tree

  bool operator==(const IndexChange&) const = default;
};

}  // namespace loam::wire
