// The fiber of each client process that works on the shared Bd-tree.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <loam/bdtree/tree.h>

#include "client-lib/testing/open_tree_store.h"
#include "common/testing/random.h"
#include "tests/sim/tracked_transaction.h"
#include "tests/sim/workload.h"

namespace loam::sim {

/// A process's handle of the tree, which reports every call to the oracle. Threads: one fiber of its client.
class TrackedTree {
 public:
  /// Name of the non-transactional table that stores the tree's nodes.
  static constexpr std::string_view kName = "tree";

  explicit TrackedTree(ClientProcess& process) : process_(process) {}

  /// Opens the tree. The first caller creates it.
  Status open();
  /// The n-th key that only this process changes. Keys of all processes lie in the same leaves.
  std::string own_key(uint64_t n) const;
  /// Inserts the key if it is absent, else erases it.
  void toggle(const std::string& key);
  void find(const std::string& key);
  void walk(const std::string& from, const std::string& to, bool backward);
  /// Reads all keys and checks the tree's structure, after the last change of all clients. False: a call was not
  /// answered.
  bool audit();

 private:
  bool answered(std::string_view call, const Status& status);

  ClientProcess& process_;
  std::shared_ptr<client::TreeStore> store_;
  std::unique_ptr<bdtree::Tree> tree_;
};

/// The fiber's loop: toggles, finds and walks until stop() returns true.
class TreeFiber {
 public:
  TreeFiber(ClientProcess& process, const WorkloadShape& shape, testing::Random random, std::function<bool()> stop)
      : process_(process), shape_(shape), random_(random), stop_(std::move(stop)) {}

  void run();

 private:
  ClientProcess& process_;
  const WorkloadShape& shape_;
  testing::Random random_;
  const std::function<bool()> stop_;
};

}  // namespace loam::sim
