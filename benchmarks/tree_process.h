// What the parts of suite bdtree that need a cluster share: a client process with its tree, keys, trips.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <loam/bdtree/tree.h>
#include <loam/client/client.h>

#include "benchmarks/answers.h"
#include "client-lib/src/api/open_tree_store.h"
#include "common/base/assert.h"
#include "common/base/status.h"
#include "deploy/cli/src/cluster/one_process.h"

namespace loam::bench {

/// One commit manager and one node with so much memory, in this process.
std::unique_ptr<cli::OneProcessCluster> start_cluster(uint64_t node_memory_bytes);

/// One client process: a client of its own with its tree, whose cache and statistics are its own too. Made and ended in
/// an ordinary thread; outlived by the cluster.
struct TreeProcess {
  TreeProcess(const std::string& address, const std::string& name, const bdtree::TreeOptions& options = {});
  ~TreeProcess();
  TreeProcess(const TreeProcess&) = delete;
  TreeProcess& operator=(const TreeProcess&) = delete;

  /// Another cache, other ways.
  void reopen(const bdtree::TreeOptions& options);
  bdtree::TreeStatistics statistics();
  /// `work(fiber)` in that many fibers at once; waits for all.
  void in_fibers(size_t fibers, const std::function<void(size_t)>& work);
  /// Ends the program unless the tree is sound; `see` is given every entry, in their order. Nobody changes it
  /// meanwhile.
  void check(const std::function<void(const bdtree::Entry&)>& see);

  std::unique_ptr<client::Client> client;
  std::shared_ptr<client::TreeStore> store;
  std::unique_ptr<bdtree::Tree> tree;
};

/// Numbers that look drawn at random, no two alike: one step of splitmix64 permutes 64 bits.
uint64_t scattered(uint64_t number);

/// What happened between two looks.
bdtree::TreeStatistics::Trips since(const bdtree::TreeStatistics::Trips& before, bdtree::TreeStatistics::Trips now);
/// Trips of all operations together.
uint64_t total(const bdtree::TreeStatistics::Trips& trips);
double mean(const bdtree::TreeStatistics::Trips& trips);
/// The least number of trips that this share of the operations does not exceed.
double quantile(const bdtree::TreeStatistics::Trips& trips, double share);

}  // namespace loam::bench
