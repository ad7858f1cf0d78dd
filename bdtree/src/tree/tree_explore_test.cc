// The tree under the explorer: every pair of operations of two processes, with a switch before every access to the
// store. The nodes are so small that the operations split and merge them. Each history must be linearizable, and
// afterwards the tree must satisfy its invariants, also after a death between any two swaps.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <loam/bdtree/tree.h>

#include "bdtree/testing/memory_store.h"
#include "common/testing/explorer.h"

namespace loam::bdtree {
namespace {

using testing::explore;
using testing::Explorer;
using testing::ExploreReport;

using Model = std::map<std::string, std::string>;

/// Leaves of two to four entries.
constexpr TreeOptions kTiny{.node_bytes = 160, .delta_bytes = 40, .attempts = 10'000};

const std::string kOld = "old payload of bytes";
const std::string kNew = "new payload of bytes";

std::string key(int n) { return "k" + std::to_string(100 + n); }

/// One call as its caller saw it. `apply` executes it on a model and returns the model's result. A call without a
/// result is one in which its process died; it may have taken effect at any later time, or never.
struct Event {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::optional<std::string> answer;
  std::function<std::string(Model&)> apply;
};

bool is_linearizable(const std::vector<Event>& events, const Model& model, const Model& last, uint32_t done = 0) {
  size_t left = 0;
  for (size_t i = 0; i < events.size(); ++i) left += (done >> i & 1) == 0 && events[i].answer;
  if (left == 0 && model == last) return true;
  for (size_t i = 0; i < events.size(); ++i) {
    if ((done >> i & 1) != 0) continue;
    const bool first = std::ranges::none_of(events, [&](const Event& other) {
      return (done >> (&other - events.data()) & 1) == 0 && other.end < events[i].begin;
    });
    if (!first) continue;
    Model next = model;
    const std::string answer = events[i].apply(next);
    if (events[i].answer && answer != *events[i].answer) continue;
    if (is_linearizable(events, next, last, done | uint32_t{1} << i)) return true;
  }
  return false;
}

std::string code(const Status& status) { return std::string(to_string(status.code())); }

/// The calls of one process; each becomes an event.
struct Process {
  Process(Explorer& explorer, MemoryNodes& nodes, std::vector<Event>& history, uint64_t owner)
      : ex(explorer), store(nodes, owner), tree(Tree::open(store, kTiny)), events(history) {}

  template <class F>
  void call(F&& f, std::function<std::string(Model&)> apply) {
    const uint64_t begin = ex.points();
    const bool dead_before = store.dead();  // in deferred work
    std::string answer = f();
    if (store.dead()) {
      if (!dead_before) events.push_back({begin, UINT64_MAX, std::nullopt, std::move(apply)});
      return;
    }
    events.push_back({begin, ex.points(), std::move(answer), std::move(apply)});
  }
  void insert(int n) {
    call([&] { return code(tree->insert(key(n), kNew)); },
         [n](Model& model) {
           return code(model.try_emplace(key(n), kNew).second ? Status() : Status(StatusCode::kAlreadyExists, ""));
         });
  }
  void erase(int n) {
    call([&] { return code(tree->erase(key(n))); },
         [n](Model& model) { return code(model.erase(key(n)) > 0 ? Status() : Status(StatusCode::kNotFound, "")); });
  }
  void append(int n) {
    call(
        [&] {
          return code(tree->update(key(n), [](std::optional<std::string_view> now) {
            return Result<Edit>(Edit::put(std::string(now.value_or("")) + "+"));
          }));
        },
        [n](Model& model) {
          model[key(n)] += "+";
          return code(Status());
        });
  }
  void find(int n) {
    const auto look = [&]() -> std::string {
      const auto found = tree->find(key(n));
      return found.ok() ? found->value_or("nothing") : code(found.status());
    };
    call(look, [n](Model& model) { return model.contains(key(n)) ? model[key(n)] : "nothing"; });
  }

  Explorer& ex;
  MemoryStore store;
  std::unique_ptr<Tree> tree;
  std::vector<Event>& events;
};

/// The work of a process in one scenario. The even keys from 0 to 11 exist before.
struct Workload {
  const char* name;
  void (*run)(Process&);
};
constexpr std::array kWorkloads = {
    Workload{"insert in the middle", [](Process& p) { p.insert(5), p.insert(5); }},
    Workload{"split", [](Process& p) { p.insert(3), p.insert(5), p.insert(7); }},
    Workload{"split at the end", [](Process& p) { p.insert(13), p.insert(15), p.insert(17); }},
    Workload{"merge", [](Process& p) { p.erase(4), p.erase(6), p.erase(8); }},
    Workload{"merge the end", [](Process& p) { p.erase(10), p.erase(8), p.erase(6); }},
    Workload{"append to one", [](Process& p) { p.append(6), p.append(6); }},
    Workload{"find", [](Process& p) { p.find(6), p.find(5), p.find(6); }},
    Workload{"come and go", [](Process& p) { p.erase(6), p.insert(6), p.find(6); }},
};

Model preload(MemoryNodes& nodes) {
  Model model;
  MemoryStore store(nodes, 99);
  const auto tree = Tree::open(store, kTiny);
  LOAM_CHECK(Tree::create(store).ok(), "no tree");
  for (const int n : {6, 0, 8, 2, 10, 4}) {
    LOAM_CHECK(tree->insert(key(n), kOld).ok(), "no insert");
    model[key(n)] = kOld;
    store.run_deferred();
  }
  return model;
}

/// Checks the final state, and that no orphans are left.
Model finish(Explorer& ex, MemoryNodes& nodes, const std::vector<std::unique_ptr<Process>>& processes) {
  for (const auto& process : processes) {
    if (!process->store.dead()) process->store.run_deferred();
  }
  MemoryStore store(nodes, 100);
  const auto tree = Tree::open(store, kTiny);
  Model last;
  const std::vector<Entry> entries = tree->range("", "", SIZE_MAX).value();
  for (const Entry& entry : entries) last[entry.key] = entry.payload;
  for (const auto& process : processes) {
    if (!process->store.dead()) continue;
    std::vector<TreeNodeId> ids;
    for (const auto& [id, node] : nodes.records) ids.emplace_back(id);
    ex.check(tree->collect_orphans(ids, [](uint64_t) { return true; }).ok(), "orphans stay");
  }
  store.run_deferred();
  const auto wrong = tree->check_invariants();
  ex.check(wrong.ok() && wrong->empty(), wrong.ok() ? *wrong : wrong.status().to_string());
  std::vector<TreeNodeId> ids;
  for (const auto& [id, node] : nodes.records) ids.emplace_back(id);
  ex.check(tree->collect_orphans(ids, [](uint64_t) { return true; }).value() == 0, "a node lies outside of the tree");
  return last;
}

class TreeExplore : public ::testing::TestWithParam<size_t> {};

TEST_P(TreeExplore, PairsAreLinearizable) {
  const Workload& first = kWorkloads[GetParam()];
  for (const Workload& second : kWorkloads) {
    uint64_t splits_and_merges = 0;
    const ExploreReport report = explore({.schedules = 300, .base_seed = 1 + GetParam()}, [&](Explorer& ex) {
      MemoryNodes nodes;
      const Model model = preload(nodes);
      std::vector<Event> events;
      std::vector<std::unique_ptr<Process>> processes;
      for (uint64_t owner = 1; owner <= 2; ++owner) {
        processes.push_back(std::make_unique<Process>(ex, nodes, events, owner));
      }
      const auto run = [&](size_t i, const Workload& work) {
        work.run(*processes[i]);
        processes[i]->store.run_deferred();
      };
      ex.spawn("first", [&] { run(0, first); });
      ex.spawn("second", [&] { run(1, second); });
      ex.run();
      const Model last = finish(ex, nodes, processes);
      ex.check(is_linearizable(events, model, last), "no order of the calls explains their results");
      for (const auto& process : processes) {
        splits_and_merges += process->tree->statistics().splits + process->tree->statistics().merges;
      }
    });
    EXPECT_TRUE(report.ok()) << first.name << " and " << second.name << ": " << report.message;
    const bool changes_structure = GetParam() == 1 || GetParam() == 3;
    EXPECT_GE(splits_and_merges, changes_structure ? 50u : 0u) << first.name << " and " << second.name;
  }
}

// A third process takes part, so that helpers meet helpers, and merges meet two splits.
TEST_P(TreeExplore, TriplesAreLinearizable) {
  const Workload& first = kWorkloads[GetParam()];
  for (const Workload& second : kWorkloads) {
    const ExploreReport report = explore({.schedules = 200, .base_seed = 1'000 + GetParam()}, [&](Explorer& ex) {
      MemoryNodes nodes;
      const Model model = preload(nodes);
      std::vector<Event> events;
      std::vector<std::unique_ptr<Process>> processes;
      const std::array work = {&first, &second, &kWorkloads[ex.random().below(kWorkloads.size())]};
      for (uint64_t owner = 1; owner <= work.size(); ++owner) {
        processes.push_back(std::make_unique<Process>(ex, nodes, events, owner));
      }
      const auto run = [&](size_t i) {
        work[i]->run(*processes[i]);
        processes[i]->store.run_deferred();
      };
      ex.spawn("first", [&] { run(0); });
      ex.spawn("second", [&] { run(1); });
      ex.spawn("third", [&] { run(2); });
      ex.run();
      const Model last = finish(ex, nodes, processes);
      ex.check(is_linearizable(events, model, last), "no order of the calls explains their results");
    });
    EXPECT_TRUE(report.ok()) << first.name << " and " << second.name << ": " << report.message;
  }
}

// The first process dies at any of its writes. The results that both processes got stay true.
TEST_P(TreeExplore, DeathDuringAnOperationLosesNothing) {
  const Workload& first = kWorkloads[GetParam()];
  for (const Workload& second : kWorkloads) {
    const ExploreReport report = explore({.schedules = 300, .base_seed = 100 + GetParam()}, [&](Explorer& ex) {
      MemoryNodes nodes;
      const Model model = preload(nodes);
      std::vector<Event> events;
      std::vector<std::unique_ptr<Process>> processes;
      processes.push_back(std::make_unique<Process>(ex, nodes, events, 1));
      processes.push_back(std::make_unique<Process>(ex, nodes, events, 2));
      processes[0]->store.die_at_write(ex.random().below(14));
      ex.spawn("dies", [&] {
        first.run(*processes[0]);
        processes[0]->store.run_deferred();
      });
      ex.spawn("lives", [&] {
        second.run(*processes[1]);
        processes[1]->store.run_deferred();
      });
      ex.run();
      const Model last = finish(ex, nodes, processes);
      ex.check(is_linearizable(events, model, last), "no order of the calls explains their results");
    });
    EXPECT_TRUE(report.ok()) << first.name << " (dies) and " << second.name << ": " << report.message;
  }
}

INSTANTIATE_TEST_SUITE_P(, TreeExplore, ::testing::Range(size_t{0}, kWorkloads.size()));

}  // namespace
}  // namespace loam::bdtree
