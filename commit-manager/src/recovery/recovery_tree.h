// Indexes, as the recoverer sees them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <loam/bdtree/node_store.h>
#include <loam/bdtree/tree.h>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/rpc/executed.h"
#include "common/wire/index_change.h"
#include "common/wire/storage.h"

namespace loam::commit {

class RecoveryEngine;

/// Reads and writes the nodes of one index in the name of the recoverer: each request once. Deferred work is left to
/// clients. Recovery seldom needs a new node, for the copy that completes the merge of a dead client. No client may
/// have begun by then (R11), so recovery has numbers of its own (RecoveryEngine::new_tree_node) and does not use the
/// counter that clients draw theirs from.
class RecoveryTreeStore final : public bdtree::NodeStore {
 public:
  RecoveryTreeStore(RecoveryEngine& engine, TableId table) : NodeStore(table), engine_(engine) {}

  Result<bdtree::TreeNodeId> new_id() override;
  uint64_t owner() override;
  void defer(std::function<void()> work) override;
  void back_off(uint32_t attempt) override;

 private:
  std::vector<Result<bdtree::StoredNode>> read(std::span<const Key> keys) override;
  Result<Version> write(const wire::PlainWrite::Operation& operation) override;
  /// After a failed request: a node that did not answer is left alone for a while.
  void note_failure(NodeId node, const Status& status, rpc::Executed executed);

  RecoveryEngine& engine_;
};

/// Others with large nodes may leave one that is larger still, by a batch of changes or a merge. The recoverer makes
/// entries shorter and no nodes: it writes such a node as it is.
inline constexpr bdtree::TreeOptions kRecoveryTree{.node_bytes = 16'384, .cache_bytes = 1 << 20, .split = false};

/// Fibers that undo the index changes of one transaction, at most: changes of one leaf travel together.
inline constexpr size_t kUndoFibers = 64;
/// Such fibers of all transactions, beside the one that each transaction has.
inline constexpr size_t kMaxUndoHelpers = 512;

/// In a fiber: undoes what a transaction did to indexes, all of it, or tells why not. [R27]
Status undo_index_changes(RecoveryEngine& engine, TransactionId transaction,
                          std::span<const wire::IndexChange> changes);

}  // namespace loam::commit
