// NodeStore: keeps the nodes of a Bd-tree as records of a table of the cluster.
#pragma once

#include <span>
#include <vector>

#include <loam/bdtree/store.h>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/reserve.h"
#include "common/base/status.h"
#include "common/wire/storage.h"

namespace loam::bdtree {

/// Keeps the nodes of a tree in a non-transactional table. The table has the schema wire::index_node_schema(); the
/// key of a record is the node's id.
///
/// A derived class implements the parts that differ between the client and recovery: how requests reach the storage
/// nodes (session, repetitions, deadlines), where node ids come from, and how long a fiber waits before a retry.
///
/// Owner, threads, errors: as Store.
class NodeStore : public Store {
 public:
  /// Keeps the nodes in `table`.
  explicit NodeStore(TableId table) : table_(table) {}

  std::vector<Result<StoredNode>> get(std::span<const TreeNodeId> ids) final;
  Result<Version> insert(TreeNodeId id, Bytes base, Bytes delta, Reserve reserve) override;
  Result<Version> replace(TreeNodeId id, Version expected, Bytes base, Bytes delta, Reserve reserve,
                          std::span<const wire::IndexIntent> intents) final;
  Result<Version> replace_delta(TreeNodeId id, Version expected, Bytes delta, Reserve reserve,
                                std::span<const wire::IndexIntent> intents) final;
  Status remove(TreeNodeId id, Version expected) final;

 protected:
  /// Reads records of the table together, and returns decode() of each in the order of `keys`. Called in a fiber.
  /// kNotFound: there is no record with this key.
  virtual std::vector<Result<StoredNode>> read(std::span<const Key> keys) = 0;
  /// Executes one exact-version write (R21) that carries the intents (R5, intents before answers), and returns the
  /// new version. Called in a fiber. The bytes of the row and of the intents live in the caller's frame.
  /// kAlreadyExists, kConflict: as wire::plain_write_code().
  virtual Result<Version> write(const wire::PlainWrite::Operation& operation,
                                std::span<const wire::IndexIntent> intents) = 0;

  /// The table that keeps the nodes.
  TableId table() const { return table_; }
  /// Decodes the row of a node's record. kMalformed: the bytes are not such a row.
  static Result<StoredNode> decode(Version version, Bytes row);

 private:
  const TableId table_;
};

}  // namespace loam::bdtree
