// Access of the recoverer to the trees of indexes, and the undo of index changes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <loam/bdtree/node_store.h>
#include <loam/bdtree/tree.h>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/storage.h"

namespace loam::commit {

class RecoveryEngine;

/// Reads and writes the tree nodes of one index for the recoverer. It sends each request once, and leaves deferred
/// work to clients. Recovery needs a new node only to complete the merge of a dead client, which copies a node. After
/// a restart no client may begin before recovery is done (R11, commit log and restart of the commit manager), so
/// recovery must not need the id counter of the clients. It has ids of its own (RecoveryEngine::new_tree_node()).
class RecoveryTreeStore final : public bdtree::NodeStore {
 public:
  RecoveryTreeStore(RecoveryEngine& engine, TableId table) : NodeStore(table), engine_(engine) {}

  Result<bdtree::TreeNodeId> new_id() override;
  uint64_t owner() override;
  void defer(std::function<void()> work) override;
  void back_off(uint32_t attempt) override;

  /// Returns the storage node that most recently was unavailable (is_unavailable()); 0: none.
  NodeId blocked_by() const { return blocked_by_; }

 private:
  std::vector<Result<bdtree::StoredNode>> read(std::span<const Key> keys) override;
  Result<Version> write(const wire::PlainWrite::Operation& operation,
                        std::span<const wire::IndexIntent> intents) override;
  /// Notes the failure of a request, or of one operation in it, and returns it.
  Status failed(NodeId node, Status status);

  RecoveryEngine& engine_;
  NodeId blocked_by_;
};

/// Options of the recoverer's trees. The recoverer does not split: it makes entries shorter. Clients may leave a node
/// that is larger than `node_bytes`, by a batch of changes or a merge, and the recoverer writes such a node as it is.
inline constexpr bdtree::TreeOptions kRecoveryTree{.node_bytes = 16'384, .cache_bytes = 1 << 20, .split = false};

/// Undoes index changes (R27, index entries): removes the marks of transactions from index entries, in the trees as
/// they are now. A tree that was dropped, or that the loss of a storage node has damaged, needs no undo (R30, table
/// creation and drop).
///
/// Owner: an attempt. The worker's thread only; several of its fibers may call it at the same time.
class IndexUndo {
 public:
  struct Outcome {
    Status status;      ///< ok: all changes are undone
    NodeId blocked_by;  ///< the node that did not answer; 0: there was another reason
  };

  explicit IndexUndo(RecoveryEngine& engine) : engine_(engine) {}

  /// Undoes as many changes as it can; called in a fiber. Changes under one key of a tree are undone together. Helper
  /// fibers undo the changes of different keys at the same time.
  Outcome undo(std::span<const wire::Intent* const> changes);

 private:
  struct Index {
    Index(RecoveryEngine& engine, TableId table)
        : store(engine, table), tree(bdtree::Tree::open(store, kRecoveryTree)) {}
    RecoveryTreeStore store;
    std::unique_ptr<bdtree::Tree> tree;
  };

  RecoveryEngine& engine_;
  std::map<TableId, Index> indexes_;
};

}  // namespace loam::commit
