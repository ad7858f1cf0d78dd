// The nodes of a Bd-tree, as a client reads and writes them.
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

/// Reads and writes nodes in the name of a session of the client; a counter of the cluster gives their numbers.
///
/// Owner and life: shared by whoever opens the tree over it and by deferred work, which may end later; made and used in
/// fibers of the engine's worker, which outlives it.
class TreeStore final : public bdtree::NodeStore, public std::enable_shared_from_this<TreeStore> {
 public:
  /// The table of that name, made if it does not exist. kAlreadyExists: a table of another schema.
  static Result<std::shared_ptr<TreeStore>> open(Engine& engine, const std::string& name);
  /// `nodes` has the schema of wire::index_node_schema(). `session`: the only one that may write, and on whose
  /// transactions' behalf it reads; null: the client's present one, whichever that is.
  TreeStore(Engine& engine, const Table& nodes, std::shared_ptr<Session> session);

  /// Makes an empty tree in it, and the counter that its nodes' numbers come from, if there is none.
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
  Counter::Impl numbers_;
  bool numbers_open_ = false;
};

}  // namespace loam::client
