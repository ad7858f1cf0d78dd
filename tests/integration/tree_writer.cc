// loam-tree-writer: a client of the tests of one Bd-tree in many processes (tree_death_test.py). `write` adds keys at
// the right end of the tree, where all processes meet, and removes some of its own keys, until its stdin ends.
// `check` reads the whole tree and sweeps the orphan nodes of dead processes.
//
// `write` reports to stdout, each line by one write(2), so that no line is lost when the process is killed:
#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <time.h>
#include <unistd.h>

#include <loam/bdtree/tree.h>
#include <loam/client/client.h>

#include "client-lib/testing/open_tree_store.h"
#include "common/base/assert.h"
#include "common/testing/random.h"

namespace {

using namespace loam;
using bdtree::Tree;
using bdtree::TreeNodeId;
using bdtree::TreeOptions;
using client::Client;
using client::TreeStore;

/// The smallest nodes, for the largest number of splits and merges.
constexpr TreeOptions kSmallNodes{.node_bytes = 1'024};
constexpr const char* kTree = "tree";

struct Options {
  std::string connect = "tcp://127.0.0.1:7400";
  std::string name = "tree-writer";
  size_t fibers = 6;
  uint64_t seed = 1;
  std::vector<uint64_t> ended;
};

void say(const std::string& line) {
  const std::string whole = line + "\n";
  LOAM_CHECK(::write(STDOUT_FILENO, whole.data(), whole.size()) == static_cast<ssize_t>(whole.size()), "stdout");
}

class Writer {
 public:
  Writer(Client& client, Tree& tree, const Options& options) : client_(client), tree_(tree), options_(options) {}

  void run() {
    std::vector<client::Task> tasks;
    for (size_t fiber = 0; fiber < options_.fibers; ++fiber) {
      tasks.push_back(client_.spawn([this, fiber] { work(fiber); }));
    }
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) > 0) {
    }
    client_.run([this] { ended_ = true; });
    for (client::Task& task : tasks) task.join();
  }

 private:
  /// A key above all keys that the tree had a moment ago, which no other process uses.
  std::string next_key() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    char key[64];
    std::snprintf(key, sizeof key, "%012ld%09ld.", now.tv_sec, now.tv_nsec);
    return key + options_.name + "." + std::to_string(++keys_);
  }

  void work(size_t fiber) {
    testing::Random random(options_.seed * 1'000 + fiber);
    std::vector<std::string> own;
    while (!ended_) {
      const std::string key = next_key();
      say("asks " + key);
      const Status made = tree_.insert(key, "of " + key);
      if (made.ok()) own.push_back(key);
      answer(made, "has ", "refused ", key);
      // Removes three of four keys, so that nodes become empty and merge.
      if (own.empty() || random.one_in(4)) continue;
      std::swap(own[random.below(own.size())], own.back());
      say("drops " + own.back());
      const Status gone = tree_.erase(own.back());
      answer(gone, "dropped ", "kept ", own.back());
      if (gone.code() != StatusCode::kConflict) own.pop_back();
    }
  }

  /// Reports the result of the call. kConflict: all attempts met changes of other processes, and nothing was changed.
  /// No other error may occur while the cluster is alive and this process is not stopped.
  static void answer(const Status& status, const char* done, const char* not_done, const std::string& key) {
    if (status.ok()) return say(done + key);
    if (status.code() == StatusCode::kConflict) return say(not_done + key);
    say("wrong " + key + ": " + status.to_string());
  }

  Client& client_;
  Tree& tree_;
  const Options& options_;
  // Used by the client's thread only.
  bool ended_ = false;
  uint64_t keys_ = 0;
};

/// Checks and sweeps the tree. Runs in a fiber of the client.
Result<nlohmann::json> check_tree(TreeStore& store, Tree& tree, const std::vector<uint64_t>& sessions) {
  LOAM_ASSIGN_OR_RETURN(const TreeNodeId end, store.new_id());
  std::vector<TreeNodeId> ids;
  for (uint64_t id = bdtree::kRoot.value; id < end.value; ++id) ids.emplace_back(id);
  const std::set<uint64_t> ended(sessions.begin(), sessions.end());
  const auto has_ended = [&](uint64_t owner) { return ended.contains(owner); };
  LOAM_ASSIGN_OR_RETURN(const size_t orphans, tree.collect_orphans(ids, has_ended));
  LOAM_ASSIGN_OR_RETURN(const size_t again, tree.collect_orphans(ids, has_ended));
  LOAM_ASSIGN_OR_RETURN(const std::string wrong, tree.check_invariants());
  LOAM_ASSIGN_OR_RETURN(const auto entries, tree.range("", "", SIZE_MAX));
  nlohmann::json found = nlohmann::json::array();
  for (const bdtree::Entry& entry : entries) found.push_back({entry.key, entry.payload});
  return nlohmann::json{{"orphans", orphans}, {"again", again}, {"wrong", wrong}, {"entries", found}};
}

Status run(const Options& options, bool write) {
  client::ClientOptions client_options;
  client_options.name = options.name;
  LOAM_ASSIGN_OR_RETURN(const auto client, Client::connect(options.connect, client_options));
  LOAM_ASSIGN_OR_RETURN(const auto store, client::open_tree_store(*client, kTree));
  std::unique_ptr<Tree> tree = Tree::open(*store, kSmallNodes);
  Status status;
  if (write) {
    say("session " + std::to_string(client->session().value));
    Writer(*client, *tree, options).run();
    const bdtree::TreeStatistics did = client->run([&] { return tree->statistics(); });
    std::fprintf(stderr, "splits %lu merges %lu helped %lu conflicts %lu combined %lu\n", did.splits, did.merges,
                 did.helped, did.conflicts, did.combined);
  } else {
    const auto found = client->run([&] { return check_tree(*store, *tree, options.ended); });
    status = found.status();
    if (found.ok()) say(found->dump());
  }
  client->run([&] { tree.reset(); });
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("A client of the tests of a Bd-tree in many processes.");
  app.add_option("--connect", options.connect, "address of the commit manager")->capture_default_str();
  app.add_option("--name", options.name, "name of this client at the commit manager, and in its keys");
  app.require_subcommand(1);
  CLI::App* write = app.add_subcommand("write", "adds keys and removes some of its own, until stdin ends");
  write->add_option("--fibers", options.fibers)->check(CLI::PositiveNumber)->capture_default_str();
  write->add_option("--seed", options.seed)->capture_default_str();
  CLI::App* check = app.add_subcommand("check", "sweeps the orphan nodes of ended sessions and prints the tree");
  check->add_option("--ended", options.ended, "sessions")->delimiter(',');
  CLI11_PARSE(app, argc, argv);

  const Status status = run(options, write->parsed());
  if (!status.ok()) std::fprintf(stderr, "loam-tree-writer: %s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
