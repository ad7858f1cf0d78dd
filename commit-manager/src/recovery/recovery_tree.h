// Indexes, as the recoverer sees them.
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

/// Reads and writes the nodes of one index in the name of the recoverer: each request once. Deferred work is left to
/// clients. Recovery needs a new node only to complete the merge of a dead client, by a copy. No client may
/// have begun by then (R11), so recovery has numbers of its own (RecoveryEngine::new_tree_node) and does not use the
/// counter that clients draw theirs from.
class RecoveryTreeStore final : public bdtree::NodeStore {
 public:
  RecoveryTreeStore(RecoveryEngine& engine, TableId table) : NodeStore(table), engine_(engine) {}

  Result<bdtree::TreeNodeId> new_id() override;
  uint64_t owner() override;
  void defer(std::function<void()> work) override;
  void back_off(uint32_t attempt) override;

  /// The storage node that did not answer last.
  NodeId blocked_by() const { return blocked_by_; }

 private:
  std::vector<Result<bdtree::StoredNode>> read(std::span<const Key> keys) override;
  Result<Version> write(const wire::PlainWrite::Operation& operation,
                        std::span<const wire::IndexIntent> intents) override;
  /// The failure of a request, or of one operation in it.
  Status failed(NodeId node, Status status);

  RecoveryEngine& engine_;
  NodeId blocked_by_;
};

/// Others with large nodes may leave one that is larger still, by a batch of changes or a merge. The recoverer makes
/// entries shorter and no nodes: it writes such a node as it is.
inline constexpr bdtree::TreeOptions kRecoveryTree{.node_bytes = 16'384, .cache_bytes = 1 << 20, .split = false};

/// Undoes index changes (R27): removes the marks that transactions have left in index entries, in the trees as they are
/// now. A tree that is gone, or that a lost node has taken along, needs no undo (R30).
///
/// Owner: an attempt. The worker's thread only; several of its fibers at once.
class IndexUndo {
 public:
  struct Outcome {
    Status status;      ///< ok: all of it
    NodeId blocked_by;  ///< the node that did not answer, if it was that; otherwise 0
  };

  explicit IndexUndo(RecoveryEngine& engine) : engine_(engine) {}

  /// In a fiber: undoes as much as can be undone. Changes under one key of a tree are undone together, those of other
  /// keys by many fibers at once.
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
