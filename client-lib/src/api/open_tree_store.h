// Trees for what looks at them without transactions: tests and measurements.
#pragma once

#include <memory>
#include <string>

#include <loam/client/client.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/src/index/tree_store.h"
#include "common/wire/system_tables.h"

namespace loam::client {

/// The table of that name with a tree in it, made if it does not exist; errors of TreeStore::open(). From a fiber of
/// the client or any thread.
inline Result<std::shared_ptr<TreeStore>> open_tree_store(Client& client, const std::string& name) {
  return client.run([&] { return TreeStore::open(client.impl().engine(), name); });
}

/// The nodes of an index's tree, as they lie there: for what looks at entries that no reader is shown.
inline std::shared_ptr<TreeStore> tree_store_of(Client& client, const Index& index) {
  const Table nodes(std::make_shared<const Table::Description>(
      Table::Description{index.id(), index.name(), TableKind::kNonTransactional, wire::index_node_schema()}));
  return std::make_shared<TreeStore>(client.impl().engine(), nodes, nullptr);
}

}  // namespace loam::client
