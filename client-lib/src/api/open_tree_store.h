// A tree of one's own, for what looks at trees without transactions: tests and measurements.
#pragma once

#include <memory>
#include <string>

#include <loam/client/client.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/src/index/tree_store.h"

namespace loam::client {

/// The table of that name with a tree in it, made if it does not exist; errors of TreeStore::open(). From a fiber of
/// the client or any thread.
inline Result<std::shared_ptr<TreeStore>> open_tree_store(Client& client, const std::string& name) {
  return client.run([&] { return TreeStore::open(client.impl().engine(), name); });
}

}  // namespace loam::client
