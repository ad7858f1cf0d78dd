// One fiber of each client that works on the Bd-tree which all of them share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <loam/bdtree/tree.h>

#include "client-lib/src/api/open_tree_store.h"
#include "common/testing/random.h"
#include "tests/sim/actor.h"
#include "tests/sim/workload.h"

namespace loam::sim {

/// A process's tree, its calls told to the oracle. Of a fiber of its client.
class TrackedTree {
 public:
  /// The plain table with its nodes.
  static constexpr std::string_view kName = "tree";

  explicit TrackedTree(Process& process) : process_(process) {}

  /// Opens the tree; the first one makes it.
  Status open();
  /// A key that only this process changes; keys of all processes lie in the same leaves.
  std::string own_key(uint64_t n) const;
  /// Inserts the key if it is not there, else erases it.
  void toggle(const std::string& key);
  void find(const std::string& key);
  void walk(const std::string& from, const std::string& to, bool backward);
  /// Everything, and the tree's own structure, after the last change of all. False: not answered.
  bool audit();

 private:
  bool answered(std::string_view call, const Status& status);

  Process& process_;
  std::shared_ptr<client::TreeStore> store_;
  std::unique_ptr<bdtree::Tree> tree_;
};

class TreeFiber {
 public:
  TreeFiber(Process& process, const WorkloadShape& shape, testing::Random random, std::function<bool()> stop)
      : process_(process), shape_(shape), random_(random), stop_(std::move(stop)) {}

  void run();

 private:
  Process& process_;
  const WorkloadShape& shape_;
  testing::Random random_;
  const std::function<bool()> stop_;
};

}  // namespace loam::sim
