// Every pair of faults at the requests of a recovery.
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/testing/recoverer_fixture.h"

namespace loam::commit {
namespace {

using wire::Opcode;

constexpr uint64_t kNodes = 3;

struct Fault {
  Opcode opcode{};
  ScriptedAction fate{};
};

std::vector<Fault> all_faults() {
  std::vector<Fault> faults;
  for (const Opcode opcode : {Opcode::kIntents, Opcode::kPlainRead, Opcode::kPlainWrite, Opcode::kRevert}) {
    for (const ScriptedAction fate :
         {ScriptedAction::kIgnore, ScriptedAction::kApply, ScriptedAction::kLate, ScriptedAction::kTwice,
          ScriptedAction::kClose, ScriptedAction::kApplyAndClose, ScriptedAction::kUnavailable}) {
      faults.push_back({opcode, fate});
    }
  }
  return faults;
}

/// Each fault meets one request of its kind: the first, or, where both are of one kind, the first and the next one.
class PairScript {
 public:
  PairScript(const Fault& first, const Fault& second) : faults_{first, second} {}
  ScriptedAction operator()(NodeId, Opcode opcode) {
    for (Fault& fault : faults_) {
      if (fault.opcode != opcode || fault.fate == ScriptedAction::kAnswer) continue;
      return std::exchange(fault.fate, ScriptedAction::kAnswer);
    }
    return ScriptedAction::kAnswer;
  }

 private:
  std::vector<Fault> faults_;
};

/// Runs the pairs whose number is `share` modulo `shares`, one after another, over nodes of its own.
void run_pairs(size_t share, size_t shares, std::atomic<size_t>& pairs) {
  const std::vector<Fault> faults = all_faults();
  ScriptedNodes nodes(kNodes);
  nodes.set_page_intents(4);
  ScriptedManager manager(nodes);
  RecovererOptions options;
  options.request_timeout_ns = 10'000'000;
  manager.start(options);
  size_t number = 0;
  uint64_t session = 0;
  for (size_t a = 0; a < faults.size(); ++a) {
    for (size_t b = a; b < faults.size(); ++b) {
      if (number++ % shares != share) continue;
      std::vector<TableId> indexes;
      for (const uint64_t node : {1, 2}) {
        indexes.push_back(nodes.index_at(NodeId(node)));
        nodes.make_tree(indexes.back());
      }
      DeadClient other(nodes, SessionId(++session), indexes);
      other.run_transaction(false);
      DeadClient dead(nodes, SessionId(++session), indexes);
      const TransactionId committed = dead.run_transaction(true);
      dead.overwrite_records_of(committed);
      dead.run_transaction(false);
      const RecoveryTask task = task_of(dead.session(), dead.open(), kNodes);
      const ScriptedState expected = nodes.undone(task);
      nodes.set_script(PairScript(faults[a], faults[b]));
      manager.add(task);
      ASSERT_TRUE(manager.wait_until_recovered(task));
      nodes.set_script({});
      nodes.run_late();
      const std::string name = std::string(wire::to_string(faults[a].opcode)) + " " +
                               std::to_string(static_cast<int>(faults[a].fate)) + ", " +
                               std::string(wire::to_string(faults[b].opcode)) + " " +
                               std::to_string(static_cast<int>(faults[b].fate));
      EXPECT_EQ(nodes.state(), expected) << name;
      pairs.fetch_add(1, std::memory_order_relaxed);  // a count
      // The other session goes, too, so that the state stays small.
      const RecoveryTask rest = task_of(other.session(), other.open(), kNodes);
      manager.add(rest);
      ASSERT_TRUE(manager.wait_until_recovered(rest));
      for (const auto& [record, versions] : nodes.state().versions) {
        for (const TransactionId id : versions) nodes.remove(id, record);
      }
      for (const TableId index : indexes) nodes.forget_index(index);
    }
  }
  manager.stop();
  manager.expect_true_reports();
}

// A run mostly waits for deadlines, so several runs share the time.
TEST(RecoveryFaultsTest, SurvivesEveryPairOfFaults) {
  constexpr size_t kShares = 8;
  std::atomic<size_t> pairs{0};
  std::vector<std::thread> threads;
  for (size_t share = 0; share < kShares; ++share) {
    threads.emplace_back([share, &pairs] { run_pairs(share, kShares, pairs); });
  }
  for (std::thread& thread : threads) thread.join();
  const size_t faults = all_faults().size();
  EXPECT_EQ(pairs.load(std::memory_order_relaxed), faults * (faults + 1) / 2);
}

}  // namespace
}  // namespace loam::commit
