// A simulated cluster: the product's processes on the simulator and a simulated network, and their faults.
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

#include "common/net/simulated/sim_transport.h"
#include "tests/sim/disk.h"
#include "tests/sim/oracle.h"
#include "tests/sim/plan.h"
#include "tests/sim/simulator.h"
#include "tests/sim/workload.h"

namespace loam::sim {

/// Role: starts the processes of a plan, restarts dead ones, carries out the faults, and plays the operator who
/// accepts losses. Owner: the run. Threads: the simulator's only one.
class Cluster {
 public:
  Cluster(const Plan& plan, Simulator& simulator, Oracle& oracle);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// Starts the commit manager and the storage nodes.
  void start_servers();
  /// Starts the clients and their load. From now on the plan's faults take place, except those whose indexes are in
  /// `without`.
  void start_load(const std::vector<size_t>& without);
  /// Starts a client process that is not a role of the plan; it runs `body` once and ends.
  void run_client(const std::string& name, std::function<void(client::Client&)> body);
  /// Ends all faults. From now on dead processes restart soon, and the operator accepts every loss.
  void end_faults();
  /// Asks the clients to finish what they have begun and to end.
  void stop_load() { stopping_ = true; }

  /// The clients have made enough progress since end_faults().
  bool progressed() const;
  bool load_ended() const;
  /// No transaction is open, no recovery is due, and every node serves. The operator updates this every few
  /// milliseconds.
  bool quiescent() const { return quiescent_; }
  /// Makes quiescent() false until the commit manager reports its state again.
  void await_next_report() {
    quiescent_ = false;
    not_quiescent_reason_ = "the commit manager has not answered";
  }
  /// The condition that keeps the cluster from being quiescent.
  const std::string& not_quiescent_reason() const { return not_quiescent_reason_; }
  /// Number of the plan's faults that took place.
  uint64_t faults_done() const { return faults_done_; }
  /// Asks every node to check its memory; an error is a violation ("structure"). Also asks the commit manager, and
  /// the log on its disk, for the outcome of every transaction.
  void check_structures();
  bool structures_checked() const;
  /// No node held an intent when its statistics were read last.
  bool intents_gone() const;
  /// Reports each intent that is left as a violation ("intent-left").
  void report_remaining_intents();
  /// No thread is still held by a fault.
  bool all_threads_run() const { return simulator_.virtual_now_ns() > stalled_until_ns_; }
  WorkloadShape shape() const;
  /// The operator knows which node owns which shard.
  bool has_shard_map() const { return !shards_.owners.empty(); }
  /// Name of the role's process; also the host of its address.
  static std::string name_of(Role role, uint32_t nodes);

 private:
  /// Upper bound on the time from the arrival of a message until the process has handled it.
  static constexpr uint64_t kHandlingNs = 1'000'000;

  struct RoleState {
    ProcessNumber process = 0;
    uint32_t number = 0;  // number of a client's process, for the oracle
    bool ended = false;   // a client has finished
    // Storage nodes only. Set while the node's process runs and is registered.
    storage::StorageNode* node = nullptr;
    NodeId node_id;
    uint64_t started_ns = 0;
    std::vector<size_t> losses;  // losses that the operator has not accepted
    bool check_requested = false;
    bool accept_loss_at_once = false;  // the operator accepts the loss as soon as the node is back
    uint64_t intents = 0;
    uint64_t leased_ns = 0;  // when the node was last seen with a lease; 0: not since its start
    // Faults of this role that wait until a thread passes a pause point.
    struct ArmedFault {
      uint64_t countdown = 0;
      bool crash = false;
      uint64_t stall_ns = 0;
      const Fault* fault = nullptr;  // the fault to fire when the thread stands still, or a kAtComplete fault
      std::string_view point = {};   // the only pause point that counts; empty: any
      std::string_view then = {};    // the pause point at which the next thread stands still; empty: none
    };
    std::vector<ArmedFault> armed;
    uint64_t jitter_until_ns = 0;
    uint64_t jitter_one_in = 0;
  };

  void start_role(Role role);
  void restart_later(Role role);
  void manager_main(Role role);
  void node_main(Role role);
  void client_main(Role role, uint32_t number);
  void stay_idle(client::Client& client, uint32_t number);
  void poll_node_statistics(RoleState& slot, const storage::StorageNode& node);
  void record_memory_loss(RoleState& slot);
  void record_manager_crash();
  /// Commits that the commit manager has announced as flushed to at least one node that is alive.
  uint64_t announced_flushed_commits() const;
  void restore_stale_copy(const Fault& fault);
  void restore_current_copy();
  bool on_stale_copy() const { return current_copy_.has_value(); }
  void check_outcomes(const commit::Core& core);
  void run_operator(commit::CommitManager& manager);
  void accept_loss(commit::Core& core, const commit::NodeStatus& node);
  void update_quiescence(const commit::Statistics& now);
  void on_crash(ProcessNumber process);
  bool on_rare(std::string_view name);
  PauseDecision on_pause_point(ProcessNumber process, std::string_view name);
  PauseDecision fire(Role role, const RoleState::ArmedFault& due);
  PauseDecision stall(uint64_t ns);
  void kill_clients(const Fault& trap);
  void restart_unnoticed(const Fault& fault);
  PauseDecision crash_after_complete();
  PauseDecision at_complete(const Fault& fault);
  void inject(const Fault& fault);
  void inject_correlated(const Fault& fault);
  void cut_power();
  void cut_power_during_index_build(std::string_view point);
  void arm_trap(const Fault& trap);
  void inject_log_fault(const Fault& fault);
  PauseDecision resume_before_fence(const Fault& fault);
  void lose_replies(const Fault& fault);
  PauseDecision at_split(Role role, const Fault& fault);
  void restart_without_publications(const Fault& fault);
  /// Stalls a thread that receives a fence, or that has undone a write, as long as a fault needs that. Returns
  /// nothing if the thread goes on.
  std::optional<PauseDecision> hold(std::string_view point);
  void reset(const Fault& fault);
  void partition(const Fault& fault, bool both);
  void delay(const Fault& fault, uint64_t ns);
  net::SimNetworkOptions network_options();
  Role role_of(ProcessNumber process) const;
  std::string name(Role role) const { return name_of(role, plan_.nodes); }
  std::string address(Role role) const { return "sim://" + name(role) + ":7400"; }

  const Plan& plan_;
  Simulator& simulator_;
  Oracle& oracle_;
  net::SimNetwork network_;
  SimDisk disk_;
  std::vector<RoleState> slots_;
  uint32_t client_numbers_ = 0;
  uint64_t faults_done_ = 0;
  uint64_t rare_until_ns_ = 0;
  uint64_t rare_one_in_ = 0;
  uint64_t stalled_until_ns_ = 0;
  uint64_t recoverer_stalled_until_ns_ = 0;
  uint64_t late_complete_ns_ = 0;        // when the stalled client continues, and completes a transaction that may
                                         // have been undone
  uint64_t late_fence_ns_ = 0;           // no node receives a fence before this time
  uint64_t batch_stalled_until_ns_ = 0;  // a batch of a node stands still until then
  uint64_t power_cut_ns_ = 0;            // no flush ends, and the power fails then; 0: no power cut is due
  bool build_cuts_power_ = false;        // the power fails earlier, when an index that is being built gets an entry
  DelegatedWrites delegated_writes_;
  uint64_t no_publications_until_ns_ = 0;  // the commit manager publishes nothing before this time
  bool crash_cuts_power_ = false;          // the next death of the commit manager is a power cut of its host
  // The commits that the commit manager counts as flushed, with the time since when. Only for the current folder, not
  // for a stale copy.
  struct Flushed {
    uint64_t since_ns = 0;
    uint64_t commits = 0;
  };
  std::vector<Flushed> flushed_;
  std::optional<SimDisk::Copy> stale_copy_;    // the newest copy that was made
  std::optional<SimDisk::Copy> current_copy_;  // the current folder, while an older copy is in use
  bool faults_started_ = false;
  bool faults_ended_ = false;
  bool stopping_ = false;
  uint64_t progress_at_faults_end_ = 0;
  wire::ShardMap shards_;
  bool quiescent_ = false;
  bool outcome_check_requested_ = false;
  std::string not_quiescent_reason_;
};

}  // namespace loam::sim
