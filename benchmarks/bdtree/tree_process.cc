#include "benchmarks/bdtree/tree_process.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/testing/random.h"

namespace loam::bench {

using bdtree::Tree;
using bdtree::TreeOptions;
using bdtree::TreeStatistics;
using client::Client;
using client::Task;

std::unique_ptr<cli::OneProcessCluster> start_cluster(uint64_t node_memory_bytes) {
  cli::OneProcessOptions options = cli::OneProcessOptions::on_free_ports();
  options.node.memory_bytes = node_memory_bytes;
  return value_or_die(cli::OneProcessCluster::start(options));
}

TreeProcess::TreeProcess(const std::string& address, const std::string& name, const TreeOptions& options)
    : client(value_or_die(Client::connect(address))), store(value_or_die(client::open_tree_store(*client, name))) {
  tree = Tree::open(*store, options);
}

TreeProcess::~TreeProcess() {
  // The tree belongs to the fibers of the client and ends in one of them. The store and the client end afterwards.
  client->run([this] { tree.reset(); });
  store.reset();
}

void TreeProcess::reopen(const TreeOptions& options) {
  client->run([&] { tree = Tree::open(*store, options); });
}

TreeStatistics TreeProcess::statistics() {
  return client->run([this] { return tree->statistics(); });
}

void TreeProcess::in_fibers(size_t fibers, const std::function<void(size_t)>& work) {
  std::vector<Task> tasks;
  tasks.reserve(fibers);
  for (size_t i = 0; i < fibers; ++i) tasks.push_back(client->spawn([&work, i] { work(i); }));
  for (Task& task : tasks) task.join();
}

void TreeProcess::check(const std::function<void(const bdtree::Entry&)>& see) {
  client->run([&] {
    // The deferred posts of other processes have ended with these; those of this process may still run.
    const std::string wrong = value_or_die(tree->check_invariants());
    LOAM_CHECK(wrong.empty(), wrong.c_str());
    // Reads the entries page by page. The next page begins with the smallest key after the last one.
    constexpr size_t kAtOnce = 10'000;
    std::string from;
    for (;;) {
      const auto entries = value_or_die(tree->range(from, "", kAtOnce));
      for (const bdtree::Entry& entry : entries) see(entry);
      if (entries.size() < kAtOnce) return;
      from = entries.back().key + std::string(1, '\0');
    }
  });
}

uint64_t splitmix64(uint64_t number) { return testing::Random::split(number); }

TreeStatistics::Trips since(const TreeStatistics::Trips& before, TreeStatistics::Trips now) {
  for (size_t i = 0; i < now.size(); ++i) now[i] -= before[i];
  return now;
}

uint64_t total(const TreeStatistics::Trips& trips) {
  uint64_t sum = 0;
  for (size_t i = 0; i < trips.size(); ++i) sum += i * trips[i];
  return sum;
}

double mean(const TreeStatistics::Trips& trips) {
  uint64_t count = 0;
  for (const uint64_t n : trips) count += n;
  return static_cast<double>(total(trips)) / static_cast<double>(std::max<uint64_t>(count, 1));
}

double quantile(const TreeStatistics::Trips& trips, double share) {
  uint64_t count = 0;
  for (const uint64_t n : trips) count += n;
  uint64_t seen = 0;
  for (size_t i = 0; i < trips.size(); ++i) {
    seen += trips[i];
    if (static_cast<double>(seen) >= share * static_cast<double>(count)) return static_cast<double>(i);
  }
  return static_cast<double>(trips.size());
}

}  // namespace loam::bench
