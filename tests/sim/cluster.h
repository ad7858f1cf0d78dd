// A simulated cluster: the product's processes on a world and a network, and the faults that befall them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <loam/client/client.h>
#include <loam/commit/manager.h>
#include <loam/storage/node.h>

#include "common/net/sim_transport.h"
#include "tests/sim/disk.h"
#include "tests/sim/oracle.h"
#include "tests/sim/plan.h"
#include "tests/sim/workload.h"
#include "tests/sim/world.h"

namespace loam::sim {

/// Role: starts the processes of a plan, restarts those that died, carries out faults, and plays the operator who
/// accepts losses. Owner: the run. Threads: the simulator's one.
class Cluster {
 public:
  Cluster(const Plan& plan, World& world, Oracle& oracle);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// The commit manager and the storage nodes.
  void start_servers();
  /// The clients with their load; and from now on the faults of the plan but those in `without` (by their index).
  void start_load(const std::vector<size_t>& without);
  /// A client process of the simulator's own that runs `body` once, and ends.
  void run_client(const std::string& name, std::function<void(client::Client&)> body);
  /// Ends all faults. Dead processes are started again soon, and every loss is accepted.
  void calm();
  /// Clients finish what they have begun, and end.
  void stop_load() { stopping_ = true; }

  /// The clients have got enough done since calm().
  bool progressed() const;
  bool load_ended() const;
  /// Nothing is open, nothing waits for recovery, every node serves. Looked at by the operator every few milliseconds.
  bool quiet() const { return quiet_; }
  /// What keeps it from being quiet.
  const std::string& unrest() const { return unrest_; }
  /// How many of the plan's faults took place.
  uint64_t faults_done() const { return faults_done_; }
  /// Asks every node to check its memory; a fault there is a violation ("structure"). Also asks the commit manager, and
  /// the log on its disk, for the outcome of every transaction.
  void check_structures();
  bool structures_checked() const;
  /// No node remembers an intent, as it was when one was last looked at.
  bool intents_gone() const;
  /// Those that are left are a violation ("intent-left").
  void judge_intents();
  /// No thread stands still any more that a fault has stopped.
  bool all_threads_run() const { return world_.world_ns() > stalled_until_ns_; }
  WorkloadShape shape() const;
  /// The operator knows where records lie.
  bool mapped() const { return !shards_.owners.empty(); }
  /// Names of processes, and hosts of their addresses.
  static std::string name_of(Role role, uint32_t nodes);

 private:
  /// Upper bound on the time in which a process handles a message that has arrived.
  static constexpr uint64_t kHandlingNs = 1'000'000;

  struct Slot {
    ProcessNumber process = 0;
    uint32_t number = 0;  // of a client's process, for the oracle
    bool ended = false;   // a client that has finished
    // Of a storage node: while it runs and has been registered.
    storage::StorageNode* node = nullptr;
    NodeId node_id;
    uint64_t started_ns = 0;
    std::vector<size_t> losses;  // that the operator has not accepted
    bool check_wanted = false;
    bool hurried = false;  // its loss is accepted as soon as it is back
    uint64_t intents = 0;
    uint64_t leased_ns = 0;  // it has held a lease then; 0: not since its start
    // Faults of this role that wait for a pause point.
    struct Armed {
      uint64_t countdown = 0;
      bool crash = false;
      uint64_t stall_ns = 0;
      const Fault* fault = nullptr;  // a trap, which is sprung when the thread stands still; or kAtComplete
      std::string_view point = {};   // this alone; empty: any
      std::string_view then = {};    // where the next thread that comes by stands still; empty: none does
    };
    std::vector<Armed> armed;
    uint64_t jitter_until_ns = 0;
    uint64_t jitter_one_in = 0;
  };

  void start_role(Role role);
  void restart_later(Role role);
  void manager_main(Role role);
  void node_main(Role role);
  void client_main(Role role, uint32_t number);
  void stay_idle(client::Client& client, uint32_t number);
  void look_at_node(Slot& slot, const storage::StorageNode& node);
  void lose(Slot& slot);
  void lose_manager();
  /// Commits that some node which lives has been told to be flushed.
  uint64_t told_commits() const;
  void adopt_older_folder(const Fault& fault);
  void return_folder();
  bool on_older_folder() const { return right_folder_.has_value(); }
  void check_outcomes(const commit::Core& core);
  void operate(commit::CommitManager& manager);
  void accept_loss(commit::Core& core, const commit::NodeStatus& node);
  void judge(const commit::Statistics& now);
  void on_crash(ProcessNumber process);
  bool on_rare(std::string_view name);
  PauseDecision on_pause_point(ProcessNumber process, std::string_view name);
  PauseDecision meet(Role role, const Slot::Armed& due);
  PauseDecision stall(uint64_t ns);
  void spring(const Fault& trap);
  void come_back(const Fault& fault);
  PauseDecision die_with_the_complete();
  PauseDecision at_complete(const Fault& fault);
  void carry_out(const Fault& fault);
  void carry_out_meeting(const Fault& fault);
  void cut_power();
  void cut_power_of_a_build(std::string_view point);
  void set_trap(const Fault& trap);
  void hinder_log(const Fault& fault);
  PauseDecision go_on_before_the_fence(const Fault& fault);
  void lose_answers(const Fault& fault);
  PauseDecision at_split(Role role, const Fault& fault);
  void come_back_without_publications(const Fault& fault);
  /// How long the thread stands still, which others wait for; nothing: it goes on.
  std::optional<PauseDecision> hold(std::string_view point);
  void reset(const Fault& fault);
  void cut(const Fault& fault, bool both);
  void delay(const Fault& fault, uint64_t ns);
  net::SimNetworkOptions network_options();
  Role role_of(ProcessNumber process) const;
  std::string name(Role role) const { return name_of(role, plan_.nodes); }
  std::string address(Role role) const { return "sim://" + name(role) + ":7400"; }

  const Plan& plan_;
  World& world_;
  Oracle& oracle_;
  net::SimNetwork network_;
  SimDisk disk_;
  std::vector<Slot> slots_;
  uint32_t client_numbers_ = 0;
  uint64_t faults_done_ = 0;
  uint64_t rare_until_ns_ = 0;
  uint64_t rare_one_in_ = 0;
  uint64_t stalled_until_ns_ = 0;
  uint64_t recoverer_stalled_until_ns_ = 0;
  uint64_t late_complete_ns_ = 0;  // a client goes on then, and completes what may have been rolled back
  uint64_t late_fence_ns_ = 0;     // no node takes a fence before
  uint64_t trapped_until_ns_ = 0;  // a batch of a node stands still until then
  uint64_t power_cut_ns_ = 0;      // no flush ends, and the power goes then; 0: it stays
  bool build_cuts_power_ = false;  // or earlier, when an index that is built gets an entry
  Errands errands_;
  uint64_t silent_until_ns_ = 0;  // the commit manager publishes nothing before
  bool power_goes_ = false;       // the death of the commit manager is that of its host
  // What the commit manager takes for flushed, since when; of the right folder.
  struct Flushed {
    uint64_t since_ns = 0;
    uint64_t commits = 0;
  };
  std::vector<Flushed> flushed_;
  std::optional<SimDisk::Copy> older_folder_;  // the last copy that was made
  std::optional<SimDisk::Copy> right_folder_;  // while an older one is in use
  bool faulty_ = false;
  bool calm_ = false;
  bool stopping_ = false;
  uint64_t progress_at_calm_ = 0;
  wire::ShardMap shards_;
  bool quiet_ = false;
  bool outcomes_wanted_ = false;
  std::string unrest_ = "the commit manager has not answered";
};

}  // namespace loam::sim
