// Access to the trees of indexes without transactions, for tests and benchmarks.
#pragma once

#include <memory>
#include <string>

#include <loam/client/client.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/src/index/tree_store.h"
#include "common/wire/system_tables.h"

namespace loam::client {

/// Opens the table of that name as a store with a tree, and creates both if they do not exist. Errors of
/// TreeStore::open(). From a fiber of the client or any thread.
inline Result<std::shared_ptr<TreeStore>> open_tree_store(Client& client, const std::string& name) {
  return client.run([&] { return TreeStore::open(client.impl().engine(), name); });
}

/// The store of an index's tree, for tests that examine entries which no reader sees.
inline std::shared_ptr<TreeStore> tree_store_of(Client& client, const Index& index) {
  const Table nodes(std::make_shared<const Table::Description>(
      Table::Description{index.id(), index.name(), TableKind::kNonTransactional, wire::index_node_schema()}));
  return std::make_shared<TreeStore>(client.impl().engine(), nodes, nullptr);
}

}  // namespace loam::client
