// The nodes of a Bd-tree as records of a table of the cluster.
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

/// Stores nodes in a non-transactional table with the schema wire::index_node_schema(), key = node number.
///
/// A derived class gives what differs between the client and recovery: how requests reach the storage nodes (session,
/// repetitions, deadlines), where node numbers come from, and how long a fiber waits for other writers.
class NodeStore : public Store {
 public:
  explicit NodeStore(TableId table) : table_(table) {}

  std::vector<Result<StoredNode>> get(std::span<const TreeNodeId> ids) final;
  Result<Version> insert(TreeNodeId id, Bytes base, Bytes delta, Reserve reserve) override;
  Result<Version> replace(TreeNodeId id, Version expected, Bytes base, Bytes delta, Reserve reserve,
                          std::span<const wire::IndexIntent> intents) final;
  Result<Version> replace_delta(TreeNodeId id, Version expected, Bytes delta, Reserve reserve,
                                std::span<const wire::IndexIntent> intents) final;
  Status remove(TreeNodeId id, Version expected) final;

 protected:
  /// In a fiber: reads records of the table at once, and returns decode() of each in the order of `keys`. kNotFound for
  /// a record that does not exist.
  virtual std::vector<Result<StoredNode>> read(std::span<const Key> keys) = 0;
  /// In a fiber: executes one exact-version write (R21) that carries the intents (R5), and returns the new version.
  /// kAlreadyExists, kConflict as wire::plain_write_code(); the bytes of the row and of the intents live in the
  /// caller's frame.
  virtual Result<Version> write(const wire::PlainWrite::Operation& operation,
                                std::span<const wire::IndexIntent> intents) = 0;

  TableId table() const { return table_; }
  /// A node from the row of its record. kMalformed.
  static Result<StoredNode> decode(Version version, Bytes row);

 private:
  const TableId table_;
};

}  // namespace loam::bdtree
