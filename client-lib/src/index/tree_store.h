// TreeStore: the store of a Bd-tree's nodes in a client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <loam/bdtree/node_store.h>
#include <loam/client/table.h>

#include "client-lib/src/driver/counter_impl.h"
#include "client-lib/src/driver/engine.h"

namespace loam::client {

/// Reads and writes tree nodes under a session of the client. A counter of the cluster gives the node ids.
///
/// Owner and life: shared by the user of the tree and by deferred work, which may end later. The engine outlives it.
/// Threads: the worker thread, in fibers.
class TreeStore final : public bdtree::NodeStore, public std::enable_shared_from_this<TreeStore> {
 public:
  /// Opens the table of that name as a store with a tree; creates both if they do not exist. kAlreadyExists: the
  /// table has another schema.
  static Result<std::shared_ptr<TreeStore>> open(Engine& engine, const std::string& name);
  /// `nodes` has the schema wire::index_node_schema(). `session`: the only session under which the store reads and
  /// writes; null: the client's current session at each call.
  TreeStore(Engine& engine, const Table& nodes, std::shared_ptr<Session> session);

  /// Creates an empty tree and the counter of its node ids, unless they exist.
  Status prepare();

  Result<Version> insert(bdtree::TreeNodeId id, Bytes base, Bytes delta, Reserve reserve) override;
  Result<bdtree::TreeNodeId> new_id() override;
  uint64_t owner() override;
  void defer(std::function<void()> work) override;
  void back_off(uint32_t attempt) override;

 private:
  std::vector<Result<bdtree::StoredNode>> read(std::span<const Key> keys) override;
  Result<Version> write(const wire::PlainWrite::Operation& operation,
                        std::span<const wire::IndexIntent> intents) override;

  Engine& engine_;
  const Table nodes_;
  const std::shared_ptr<Session> session_;
  Counter::Impl node_ids_;
  bool node_ids_open_ = false;
};

}  // namespace loam::client
