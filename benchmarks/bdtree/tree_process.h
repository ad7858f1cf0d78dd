// The common part of the measurements of suite bdtree that need a cluster: client processes with a tree, keys, trips.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <loam/bdtree/tree.h>
#include <loam/client/client.h>

#include "benchmarks/harness/check_ok.h"
#include "client-lib/testing/open_tree_store.h"
#include "common/base/assert.h"
#include "common/base/status.h"
#include "deploy/cli/src/cluster/one_process.h"

namespace loam::bench {

/// Starts one commit manager and one storage node in this process. The storage node has the given memory.
std::unique_ptr<cli::OneProcessCluster> start_cluster(uint64_t node_memory_bytes);

/// A client process in this program: a client with a tree of its own, hence with a cache and statistics of its own.
/// Created and destroyed in an ordinary thread; the cluster outlives it.
struct TreeProcess {
  TreeProcess(const std::string& address, const std::string& name, const bdtree::TreeOptions& options = {});
  ~TreeProcess();
  TreeProcess(const TreeProcess&) = delete;
  TreeProcess& operator=(const TreeProcess&) = delete;

  /// Opens the tree again with other options and an empty cache.
  void reopen(const bdtree::TreeOptions& options);
  /// The statistics of the tree since it was opened.
  bdtree::TreeStatistics statistics();
  /// Runs `work(fiber)` in `fibers` fibers at once and waits for all of them.
  void in_fibers(size_t fibers, const std::function<void(size_t)>& work);
  /// Checks the invariants of the tree and calls `see` for every entry in key order. Aborts the program if one does not
  /// hold. Nothing may change the tree meanwhile.
  void check(const std::function<void(const bdtree::Entry&)>& see);

  std::unique_ptr<client::Client> client;
  std::shared_ptr<client::TreeStore> store;
  std::unique_ptr<bdtree::Tree> tree;
};

/// A permutation of the 64-bit numbers whose results look random: one step of splitmix64.
uint64_t splitmix64(uint64_t number);

/// The trips between two samples of the statistics.
bdtree::TreeStatistics::Trips since(const bdtree::TreeStatistics::Trips& before, bdtree::TreeStatistics::Trips now);
/// The number of trips of all operations.
uint64_t total(const bdtree::TreeStatistics::Trips& trips);
/// The mean number of trips of an operation.
double mean(const bdtree::TreeStatistics::Trips& trips);
/// The smallest number of trips that a fraction `share` of the operations does not exceed.
double quantile(const bdtree::TreeStatistics::Trips& trips, double share);

}  // namespace loam::bench
