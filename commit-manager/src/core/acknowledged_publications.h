// Which publication each storage node has acknowledged, and which ids these publications count as complete.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include <loam/commit/core.h>

#include "common/base/ids.h"
#include "common/snapshot/publication.h"

namespace loam::commit {

/// The publications that were sent, and the newest one that each storage node has acknowledged [R13, atomic
/// publication].
///
/// A storage node that has acknowledged a publication names no intent of an id that the publication counts as complete
/// (R5, intents before answers). So the commit log may truncate an id that all nodes count as complete.
///
/// Owner: Core. One thread.
class AcknowledgedPublications {
 public:
  /// Keeps the content of a publication until the connected nodes have acknowledged it or a newer one.
  void add_sent(const Publication& publication);
  /// Records an acknowledgement of `node`. Returns false if the publication is not known any more; that only delays
  /// truncation. `connected` has the storage nodes that are connected.
  bool acknowledge(NodeId node, uint64_t number, const std::map<NodeId, PeerId>& connected);
  /// Removes what the node has acknowledged, because a new process of the node has started.
  void forget(NodeId node) { acknowledged_.erase(node); }
  /// True if the node has acknowledged a publication that counts the ids from `first` to `last` as complete.
  bool complete_at(NodeId node, TransactionId first, TransactionId last) const;

 private:
  struct Acknowledged {
    uint64_t number = 0;
    std::shared_ptr<const Snapshot> complete;
  };
  /// Publications that may still be acknowledged, by number: the ids that each one counts as complete.
  std::map<uint64_t, std::shared_ptr<const Snapshot>> sent_;
  std::map<NodeId, Acknowledged> acknowledged_;
};

}  // namespace loam::commit
