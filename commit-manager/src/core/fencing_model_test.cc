// Random starts and deaths of storage nodes and clients: no session is recovered while a node may still serve it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"
#include "common/testing/random.h"

namespace loam::commit {
namespace {

using testing::Random;
using wire::Begin;
using wire::CloseSession;
using wire::Fence;
using wire::FenceReply;
using wire::NodeState;
using wire::OpenSession;
using wire::RegisterNode;
using wire::RegisterNodeReply;
using wire::RenewNode;

/// One process of a storage node with its own clock and its own view of its lease and the fences.
struct Process {
  std::string address;
  double rate = 1;  ///< of its clock
  Incarnation incarnation{};
  PeerId peer{};  ///< 0: not connected
  uint64_t asked_ns = 0;
  uint64_t lease_until_ns = 0;
  wire::FenceSet fences{};
  bool running = true;

  /// True if the process would execute a write of this session.
  bool serves(SessionId session, uint64_t now_ns) const {
    return running && now_ns < lease_until_ns && !fences.fenced(session);
  }
};

struct FencingModel : ::testing::TestWithParam<int> {
  FencingModel() : random(testing::test_seed(static_cast<uint64_t>(GetParam()))) { restart(); }

  static CoreOptions options() {
    CoreOptions options = CoreHarness::open_at_once();
    options.initial_nodes = 2;
    return options;
  }

  void restart() {
    const uint64_t now_ns = h ? h->now_ns + random.below(2 * kLease) : 1'000'000'000;
    const Buffer state = durable.state;
    ASSERT_TRUE(Core::check_state(state).ok());
    h = std::make_unique<CoreHarness>(options(), &durable, state);
    h->now_ns = now_ns;
    h->core.on_timer(now_ns);
    for (Process& process : processes) process.peer = PeerId(0);
    clients.clear();
    older = SessionId(newest.value);
  }

  void connect(Process& process) {
    process.peer = h->connect();
    process.asked_ns = h->now_ns;
    h->post(process.peer, RegisterNode{process.address, "", 1, process.incarnation});
  }

  /// The process reads one message.
  void read(Process& process) {
    auto& queue = h->outbox.sent[process.peer];
    if (queue.empty()) return;
    const Buffer bytes = queue.front();
    const auto opcode = static_cast<wire::Opcode>(bytes[0]);
    const auto lease = [&] {
      process.lease_until_ns = process.asked_ns + static_cast<uint64_t>(static_cast<double>(kLease) / process.rate);
    };
    if (opcode == wire::Opcode::kRegisterNodeReply) {
      const auto registered = h->receive<RegisterNodeReply>(process.peer);
      process.incarnation = registered->incarnation;
      process.fences = registered->fences;
      lease();
    } else if (opcode == wire::Opcode::kRenewNodeReply) {
      static_cast<void>(h->receive<wire::RenewNodeReply>(process.peer));
      lease();
    } else if (opcode == wire::Opcode::kFence) {
      const auto fence = h->receive<Fence>(process.peer);
      process.fences = fence->fences;
      h->deliver(process.peer, CoreHarness::encoded(FenceReply{}, fence.sequence));
    } else if (opcode == wire::Opcode::kAcceptLoss) {
      const auto accept = h->receive<wire::AcceptLoss>(process.peer);
      h->deliver(process.peer, CoreHarness::encoded(wire::AcceptLossReply{}, accept.sequence));
    } else if (opcode == wire::Opcode::kInstallTable) {
      const auto install = h->receive<wire::InstallTable>(process.peer);
      h->deliver(process.peer, CoreHarness::encoded(wire::InstallTableReply{}, install.sequence));
    } else if (opcode == wire::Opcode::kError) {
      const StatusCode code = h->receive<RegisterNodeReply>(process.peer).error.code();
      if (code == StatusCode::kUnavailable) {  // other nodes have not reported since the restart
        h->core.on_peer_disconnected(process.peer);
        process.peer = PeerId(0);
        return;
      }
      EXPECT_EQ(code, StatusCode::kFenced) << "the incarnation was replaced";
      process.running = false;
    } else {
      queue.pop_front();
    }
  }

  void move_process(Process& process) {
    if (!process.running) return;
    if (process.peer.value != 0 && h->outbox.closed.contains(process.peer)) process.peer = PeerId(0);
    if (process.peer.value == 0) {
      if (random.one_in(6)) connect(process);
      return;
    }
    for (uint64_t count = random.below(4); count > 0; --count) read(process);
    if (process.peer.value == 0 || !process.running) return;
    if (random.one_in(3) && process.incarnation.value != 0 && h->outbox.sent[process.peer].empty()) {
      process.asked_ns = h->now_ns;
      h->post(process.peer, RenewNode{});
    }
    if (random.one_in(60)) {  // cut off: it runs on with the lease that it has
      h->core.on_peer_disconnected(process.peer);
      process.peer = PeerId(0);
    }
    if (random.one_in(120)) process.running = false;
  }

  void start_process() {
    Process process;
    process.address = "tcp://n:" + std::to_string(random.below(3));
    process.rate = 1 + (static_cast<double>(random.below(200)) - 100) / 1'000;  // a tenth off, either way
    processes.push_back(process);
  }

  void move_clients() {
    if (random.one_in(4) && clients.size() < 4) {
      const PeerId peer = h->connect();
      const auto opened = h->call<wire::OpenSessionReply>(peer, OpenSession{"model"});
      if (opened.ok()) {
        newest = opened->session;
        clients.push_back(peer);
      }
    }
    for (size_t i = 0; i < clients.size(); ++i) {
      h->post(clients[i], Begin{random.one_in(3) ? 1u : 0u, false});
      h->outbox.sent[clients[i]].clear();
      if (!random.one_in(25)) continue;
      if (random.one_in(2)) h->post(clients[i], CloseSession{});
      clients.erase(clients.begin() + static_cast<ptrdiff_t>(i--));  // or is not heard of again
    }
  }

  void recover() {
    for (RecoveryTask& task : h->core.recovery_tasks(random.below(20))) {
      if (random.one_in(4)) continue;
      if (random.one_in(4)) task.nodes.resize(1);  // the others have not answered
      h->core.complete_recovery(task, h->now_ns);
    }
    for (const NodeStatus& node : h->core.nodes()) {
      if (node.info.state == NodeState::kLost && random.one_in(4)) h->core.accept_loss(node.info.id, [](Status) {});
    }
  }

  /// The invariant: no storage node executes a write of a session at which recovery may work already.
  void check() {
    for (const RecoveryTask& task : h->core.recovery_tasks(SIZE_MAX)) {
      const bool restart = task.session == SessionId();
      for (const Process& process : processes) {
        const auto at = [&](NodeId node) { return h->core.nodes()[node.value - 1].info.address == process.address; };
        if (!restart && std::ranges::none_of(task.nodes, at)) continue;
        for (uint64_t id = restart ? 1 : task.session.value; id <= (restart ? older : task.session).value; ++id) {
          ASSERT_FALSE(process.serves(SessionId(id), h->now_ns))
              << "session " << id << " at " << process.address << ", incarnation " << process.incarnation.value;
        }
      }
      ++tasks;
      partly += !restart && task.nodes.size() == 1 ? 1 : 0;
    }
    for (const SessionStatus& session : h->core.sessions()) {
      if (session.state != SessionStatus::State::kRecovering) continue;
      ++handed;
      for (const Process& process : processes) {
        ASSERT_FALSE(process.serves(session.id, h->now_ns))
            << "session " << session.id.value << " at " << process.address << ", incarnation "
            << process.incarnation.value;
        counted_by_lease += process.running && !process.fences.fenced(session.id) ? 1 : 0;
      }
    }
    h->core.check_invariants();
  }

  Random random;
  RecordingStateStore durable;
  std::unique_ptr<CoreHarness> h;
  std::vector<Process> processes;
  std::vector<PeerId> clients;
  SessionId newest;  ///< of all sessions ever opened
  SessionId older;   ///< of those of earlier epochs
  uint64_t handed = 0, counted_by_lease = 0, tasks = 0, partly = 0;
};

TEST_P(FencingModel, NothingIsRecoveredWhileANodeMayStillServeIt) {
  for (int step = 0; step < 1'500 && !HasFatalFailure(); ++step) {
    h->run_for(random.below(kLease / 8));
    if (processes.size() < 2 || random.one_in(40)) start_process();
    for (Process& process : processes) move_process(process);
    std::erase_if(processes, [](const Process& process) { return !process.running; });
    move_clients();
    check();
    recover();
    if (random.one_in(300)) restart();
  }
  EXPECT_GT(handed, 0u) << "the run shows something";
  EXPECT_GT(tasks, partly);
  EXPECT_GT(partly, 0u) << "one node is done before the other";
  EXPECT_GT(counted_by_lease, 0u) << "and a process that runs on without a lease";
  if (HasFatalFailure()) return;
  // When one process at each address continues, everything is recovered in the end.
  processes.clear();
  for (const NodeStatus& node : h->core.nodes()) processes.push_back({node.info.address});
  for (int i = 0; i < 400; ++i) {
    for (Process& process : processes) {
      if (process.peer.value != 0 && h->outbox.closed.contains(process.peer)) process.peer = PeerId(0);
      if (process.peer.value == 0) connect(process);
      process.asked_ns = h->now_ns;
      h->post(process.peer, RenewNode{});
      while (!h->outbox.sent[process.peer].empty()) read(process);
    }
    h->run_for(kLease / 16);
    check();
    recover();
  }
  EXPECT_TRUE(h->core.sessions().empty());
  EXPECT_TRUE(h->core.ready());
}

INSTANTIATE_TEST_SUITE_P(Seeds, FencingModel, ::testing::Range(1, 25));

}  // namespace
}  // namespace loam::commit
