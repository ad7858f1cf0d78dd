// Indexes, as the recoverer sees them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <loam/bdtree/store.h>
#include <loam/bdtree/tree.h>

#include "commit-manager/src/recovery/recovery_node.h"
#include "commit-manager/src/recovery/recovery_wait.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/fiber/wait.h"
#include "common/wire/index_change.h"
#include "common/wire/storage.h"

namespace loam::commit {

class RecoveryEngine;

/// One request of a fiber to one node. Lies on the fiber's stack.
class RecoveryCall final : public RecoveryWait, private NodeCaller {
 public:
  explicit RecoveryCall(RecoveryEngine& engine) : RecoveryWait(engine) {}
  ~RecoveryCall();
  RecoveryCall(const RecoveryCall&) = delete;
  RecoveryCall& operator=(const RecoveryCall&) = delete;

  template <wire::Message M>
  void send(NodeId node, const M& message);
  /// In a fiber.
  Status wait();
  void engine_closes(const Status& status) override { end(status); }

  std::vector<bdtree::StoredNode> rows;  ///< of a read, in its order
  std::vector<wire::WriteResult> results;
  std::vector<StatusCode> codes;  ///< of a read

 private:
  Status on_reply(uint32_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint32_t token, const Status& status, rpc::Executed executed) override;
  void end(const Status& status);

  NodeId node_;
  Status status_;
  fiber::Event answered_;
};

/// The nodes of one index's tree over the recoverer's links. Deferred work is left to clients. A number is seldom
/// wanted, where a merge that a dead client began needs a copy, but it may be before any client can begin (R11): the
/// counter that clients draw theirs from is not asked, the recoverer has numbers of its own
/// (RecoveryEngine::new_tree_node).
class RecoveryTreeStore final : public bdtree::Store {
 public:
  RecoveryTreeStore(RecoveryEngine& engine, TableId nodes) : engine_(engine), nodes_(nodes) {}

  std::vector<Result<bdtree::StoredNode>> get(std::span<const bdtree::TreeNodeId> ids) override;
  Result<Version> insert(bdtree::TreeNodeId id, Bytes base, Bytes delta, Reserve reserve) override;
  Result<Version> replace(bdtree::TreeNodeId id, Version expected, Bytes base, Bytes delta, Reserve reserve) override;
  Result<Version> replace_delta(bdtree::TreeNodeId id, Version expected, Bytes delta, Reserve reserve) override;
  Status remove(bdtree::TreeNodeId id, Version expected) override;
  Result<bdtree::TreeNodeId> new_id() override;
  uint64_t owner() override;
  void defer(std::function<void()> work) override;
  void back_off(uint32_t attempt) override;

 private:
  Result<Version> write(wire::WriteKind kind, bdtree::TreeNodeId id, Version expected, Bytes row, Reserve reserve,
                        FieldNumbers fields = {});

  RecoveryEngine& engine_;
  const TableId nodes_;
};

/// Others with large nodes may leave one that is larger still, by a batch of changes or a merge. The recoverer makes
/// entries shorter and no nodes: it writes such a node as it is.
inline constexpr bdtree::TreeOptions kRecoveryTree{.node_bytes = 16'384, .cache_bytes = 1 << 20, .split = false};

/// Fibers that undo the index changes of one transaction, at most: changes of one leaf travel together.
inline constexpr size_t kUndoFibers = 64;

/// In a fiber: undoes what a transaction did to indexes, all of it, or tells why not. [R27]
Status undo_index_changes(RecoveryEngine& engine, TransactionId transaction,
                          std::span<const wire::IndexChange> changes);

}  // namespace loam::commit
