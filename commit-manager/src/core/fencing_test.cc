// Storage nodes that die, come back, are replaced and acknowledge late; and who may still write meanwhile.
#include <gtest/gtest.h>

#include "commit-manager/src/core/core_harness.h"
#include "common/testing/random.h"

namespace loam::commit {
namespace {

using testing::Random;
using wire::Begin;
using wire::Begun;
using wire::CloseSession;
using wire::Fence;
using wire::FenceInstalled;
using wire::NodeRegistered;
using wire::NodeState;
using wire::OpenSession;
using wire::RegisterNode;
using wire::RenewNode;

/// A session with one open transaction that its client gives up; returns its number.
SessionId lose_session(CoreHarness& h) {
  const PeerId peer = h.connect();
  const SessionId id = h.call<wire::SessionOpened>(peer, OpenSession{"gives up"})->session;
  EXPECT_TRUE(h.call<Begun>(peer, Begin{1, false}).ok());
  EXPECT_TRUE(h.call<wire::SessionClosed>(peer, CloseSession{}).ok());
  return id;
}

bool handed_out(const CoreHarness& h, SessionId session) {
  for (const RecoveryTask& task : h.core.recovery_tasks(SIZE_MAX)) {
    if (task.session == session) return true;
  }
  return false;
}

TEST(Fencing, TheSetNamesAllButTheAlive) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  h.client();
  const PeerId closed = h.client();
  h.client();
  ASSERT_TRUE(h.call<wire::SessionClosed>(closed, CloseSession{}).ok());
  EXPECT_TRUE(h.outbox.sent[node].empty()) << "nobody waits for the fence of one that has closed with nothing left";
  const SessionId dead = lose_session(h);
  const auto fence = h.newest<Fence>(node);
  ASSERT_TRUE(fence.ok());
  EXPECT_EQ(fence->fences, (wire::FenceSet{dead, {SessionId(1), SessionId(3)}}));
  const PeerId late = h.connect();
  EXPECT_EQ(h.call<NodeRegistered>(late, RegisterNode{"tcp://b:1", "", 1})->fences, fence->fences);
}

/// A client that closes with nothing left.
SessionId close_session(CoreHarness& h) {
  const PeerId peer = h.connect();
  const SessionId id = h.call<wire::SessionOpened>(peer, OpenSession{"closes"})->session;
  EXPECT_TRUE(h.call<wire::SessionClosed>(peer, CloseSession{}).ok());
  return id;
}

TEST(Fencing, NodesHearOfClosedSessionsWithoutAnyDeath) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  h.run_for(1);
  const SessionId closed = close_session(h);
  close_session(h);
  h.run_for(kClosedUnfencedNs - 1);
  EXPECT_FALSE(h.newest<Fence>(node).ok()) << "not each alone";
  h.post(node, RenewNode{});
  h.run_for(kLease / 16);
  const auto fence = h.newest<Fence>(node);
  ASSERT_TRUE(fence.ok());
  EXPECT_TRUE(fence->fences.fenced(closed));
  EXPECT_EQ(fence->fences.watermark, SessionId(closed.value + 1));
  h.run_for(kLease / 2);
  EXPECT_EQ(h.core.statistics().fences, 1u) << "once is enough";
  EXPECT_EQ(h.core.statistics().sessions_fencing, 0u);
}

TEST(Fencing, ManyClosedSessionsAreToldAtOnce) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  SessionId last;
  for (size_t i = 1; i < kMaxClosedUnfenced; ++i) last = close_session(h);
  EXPECT_FALSE(h.newest<Fence>(node).ok());
  last = close_session(h);
  const auto fence = h.newest<Fence>(node);
  ASSERT_TRUE(fence.ok());
  EXPECT_EQ(fence->fences, (wire::FenceSet{last, {}}));
  lose_session(h);
  h.run_for(kClosedUnfencedNs + kLease / 16);
  EXPECT_EQ(h.core.statistics().fences, 2u) << "the one for the dead; nothing is left to tell";
}

TEST(Fencing, AnUnreachableNodeCountsWhenItsLeaseIsOver) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  h.core.peer_lost(b);
  const SessionId dead = lose_session(h);
  ASSERT_TRUE(h.acknowledge_fence(a));
  h.run_for(kLease);
  h.post(a, RenewNode{});
  EXPECT_FALSE(handed_out(h, dead)) << "b may still serve it";
  EXPECT_EQ(h.core.nodes()[1].info.state, NodeState::kLive);
  h.run_for(kLease / 4);
  EXPECT_TRUE(handed_out(h, dead));
  EXPECT_EQ(h.core.nodes()[1].info.state, NodeState::kUnreachable);
  EXPECT_EQ(h.core.statistics().node_leases_expired, 1u);
  h.core.check_invariants();
}

// What a node answers to it before it has the fence must not be older than its snapshot (R27).
TEST(Fencing, ADeadReadersSnapshotStaysOpenUntilNobodyAnswersIt) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  const PeerId reader = h.client();
  ASSERT_TRUE(h.call<Begun>(reader, Begin{0, true}).ok());
  const PeerId writer = h.client();
  const auto write = [&] {
    const auto begun = h.call<Begun>(writer, Begin{1, false});
    ASSERT_TRUE(begun.ok());
    ASSERT_TRUE(h.call<wire::Completed>(writer, wire::Complete{{{begun->first_id, true}}}).ok());
  };
  write();
  const uint64_t before = h.core.statistics().seen_by_all;
  const PeerId dead = h.connect();
  ASSERT_TRUE(h.call<wire::SessionOpened>(dead, OpenSession{"gives up"}).ok());
  h.core.peer_lost(reader);
  for (int i = 0; i < 3 * 16 && h.core.statistics().sessions == 3; ++i) {
    for (const PeerId alive : {a, b}) h.post(alive, RenewNode{});
    for (const PeerId alive : {writer, dead}) h.post(alive, wire::RenewSession{});
    h.run_for(kLease / 16);
  }
  ASSERT_EQ(h.core.statistics().sessions, 2u) << "its lease is over";
  h.outbox.sent[writer].clear();
  write();
  ASSERT_TRUE(h.acknowledge_fence(a));
  EXPECT_EQ(h.core.statistics().seen_by_all, before) << "b may still answer it";
  ASSERT_TRUE(h.acknowledge_fence(b));
  EXPECT_GT(h.core.statistics().seen_by_all, before);
  h.core.check_invariants();
}

TEST(Fencing, BeginsGoOnWithADeadNode) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  h.core.peer_lost(h.node("tcp://b:1"));
  const PeerId client = h.client();
  for (int i = 0; i < 8; ++i) {
    const auto begun = h.call<Begun>(client, Begin{1, false});
    ASSERT_TRUE(begun.ok());
    ASSERT_TRUE(h.call<wire::Completed>(client, wire::Complete{{{begun->first_id, true}}}).ok());
    h.post(a, RenewNode{});
    h.run_for(kLease / 2);
  }
  EXPECT_EQ(h.core.statistics().commits, 8u);
  EXPECT_TRUE(h.newest<wire::Publish>(a).ok()) << "and so do publications";
}

TEST(Fencing, ANodeThatComesBackCountsAgainOnlyWhenItAcknowledges) {
  CoreHarness h;
  const PeerId first = h.node("tcp://a:1");
  const SessionId dead = lose_session(h);
  h.core.peer_lost(first);
  const PeerId second = h.connect();
  const auto back = h.call<NodeRegistered>(second, RegisterNode{"tcp://a:1", "", 1, Incarnation(1)});
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->incarnation, Incarnation(1)) << "the same memory goes on";
  EXPECT_FALSE(back->memory_lost);
  EXPECT_TRUE(back->fences.fenced(dead));
  EXPECT_EQ(back->lease_ns, kLease);
  EXPECT_FALSE(handed_out(h, dead)) << "having the set is not enough (R7)";
  ASSERT_TRUE(h.acknowledge_fence(second));
  EXPECT_TRUE(handed_out(h, dead));
}

TEST(Fencing, AnAcknowledgementIsOfOneIncarnation) {
  CoreHarness h;
  const PeerId first = h.node("tcp://a:1");
  h.core.peer_lost(first);
  const SessionId dead = lose_session(h);
  h.run_for(kLease / 2);
  const PeerId second = h.connect();
  ASSERT_EQ(h.call<NodeRegistered>(second, RegisterNode{"tcp://a:1", "", 1})->incarnation, Incarnation(2));
  ASSERT_TRUE(h.acknowledge_fence(second));
  EXPECT_FALSE(handed_out(h, dead)) << "the incarnation before may still run somewhere, with its lease";
  h.run_for(kLease / 2);
  h.post(second, RenewNode{});
  h.run_for(kLease / 4);
  EXPECT_TRUE(handed_out(h, dead));
}

TEST(Fencing, AnAcknowledgementOfBeforeTheRegistrationDoesNotCount) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  const SessionId dead = lose_session(h);
  ASSERT_TRUE(h.acknowledge_fence(a));
  h.core.peer_lost(a);
  const PeerId back = h.node("tcp://a:1", Incarnation(1));
  ASSERT_TRUE(h.acknowledge_fence(b));
  EXPECT_FALSE(handed_out(h, dead)) << "a has taken its fences from the registration, and has not said when";
  ASSERT_TRUE(h.acknowledge_fence(back));
  EXPECT_TRUE(handed_out(h, dead));
}

TEST(Fencing, AReplacedIncarnationIsFenced) {
  CoreHarness h;
  h.node("tcp://a:1");
  h.node("tcp://a:1");
  const PeerId old = h.connect();
  EXPECT_EQ(h.call<NodeRegistered>(old, RegisterNode{"tcp://a:1", "", 1, Incarnation(1)}).error.code(),
            StatusCode::kFenced);
  EXPECT_EQ(h.call<NodeRegistered>(old, RegisterNode{"tcp://z:1", "", 1, Incarnation(1)}).error.code(),
            StatusCode::kFenced)
      << "of another cluster, or of a commit manager that has lost its state";
  EXPECT_EQ(h.core.statistics().nodes_unreachable, 0u);
}

TEST(Fencing, ANodeWithoutLeaseHasToRegister) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(h.call<wire::NodeRenewed>(node, RenewNode{}).ok());
    h.run_for(kLease / 2);
    h.outbox.sent[node].clear();
  }
  EXPECT_FALSE(h.outbox.closed.contains(node));
  h.run_for(kOver);
  EXPECT_EQ(h.outbox.closed.at(node), StatusCode::kUnavailable);
  const PeerId back = h.node("tcp://a:1", Incarnation(1));
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLive);
  EXPECT_FALSE(h.outbox.closed.contains(back));
  h.core.check_invariants();
}

TEST(Fencing, AFenceThatWasNeverSentIsMalformed) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  const SessionId dead = lose_session(h);
  const uint64_t sequence = h.newest<Fence>(a).sequence;
  const PeerId again = h.node("tcp://a:1", Incarnation(1));
  h.deliver(again, CoreHarness::encoded(FenceInstalled{}, sequence));
  EXPECT_EQ(h.outbox.closed.at(again), StatusCode::kMalformed) << "told on an earlier connection, not on this one";
  ASSERT_TRUE(h.acknowledge_fence(b));
  EXPECT_FALSE(handed_out(h, dead));
  const PeerId client = h.client();
  h.deliver(client, CoreHarness::encoded(FenceInstalled{}, sequence));
  EXPECT_EQ(h.outbox.closed.at(client), StatusCode::kMalformed);
}

TEST(Fencing, ANodeThatCannotFenceLosesItsConnection) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const SessionId dead = lose_session(h);
  const uint64_t sequence = h.newest<Fence>(node).sequence;
  h.deliver(node, CoreHarness::encoded(wire::Error{Status(StatusCode::kInternal, "no"), 0}, sequence));
  EXPECT_TRUE(h.outbox.closed.contains(node));
  EXPECT_FALSE(handed_out(h, dead));
  h.run_for(kOver);
  EXPECT_TRUE(handed_out(h, dead));
}

TEST(Fencing, ALossIsAcceptedByTheNodeThatHasIt) {
  CoreOptions options = CoreHarness::open_at_once();
  options.initial_nodes = 1;
  CoreHarness h(options);
  std::optional<Status> done;
  const auto accept = [&](uint64_t node) {
    done.reset();
    h.core.accept_loss(NodeId(node), [&](Status status) { done = std::move(status); });
    return done.has_value() ? done->code() : StatusCode::kOk;
  };
  const PeerId first = h.node("tcp://a:1");
  EXPECT_EQ(accept(1), StatusCode::kInvalidArgument) << "it has lost nothing";
  EXPECT_EQ(accept(0), StatusCode::kInvalidArgument);
  EXPECT_EQ(accept(2), StatusCode::kInvalidArgument) << "no such node";
  h.core.peer_lost(first);
  h.run_for(kOver);
  EXPECT_EQ(accept(1), StatusCode::kUnavailable);
  EXPECT_NE(done->message().find("start it anew first"), std::string_view::npos) << done->to_string();
  const PeerId second = h.node("tcp://a:1");
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLost);
  EXPECT_TRUE(h.core.nodes()[0].memory_lost);
  accept(1);
  EXPECT_FALSE(done.has_value()) << "the node is told first";
  const auto told = h.newest<wire::AcceptLoss>(second);
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLost);
  h.deliver(second, CoreHarness::encoded(wire::LossAccepted{}, told.sequence));
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->ok()) << done->to_string();
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLive);
  EXPECT_EQ(h.core.nodes()[0].shards, wire::kVirtualShards);
  h.core.check_invariants();
}

TEST(Fencing, ALossThatTheNodeNeverHeardOfComesWithItsRegistration) {
  CoreOptions options = CoreHarness::open_at_once();
  options.initial_nodes = 1;
  CoreHarness h(options);
  h.node("tcp://a:1");
  const PeerId second = h.node("tcp://a:1");
  std::optional<Status> done;
  h.core.accept_loss(NodeId(1), [&](Status status) { done = std::move(status); });
  h.core.peer_lost(second);
  EXPECT_FALSE(done.has_value());
  const PeerId third = h.connect();
  const auto back = h.call<NodeRegistered>(third, RegisterNode{"tcp://a:1", "", 1, Incarnation(2)});
  EXPECT_FALSE(back->memory_lost);
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->ok());
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLive);
  const PeerId fourth = h.node("tcp://a:1");
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLost) << "and lost again with the next start";
  h.core.accept_loss(NodeId(1), [&](Status status) { done = std::move(status); });
  h.core.peer_lost(fourth);
  h.node("tcp://a:1");
  EXPECT_EQ(done->code(), StatusCode::kUnavailable) << "that start has lost its memory too; nobody has accepted it";
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLost);
  h.core.check_invariants();
}

// ---- the model ------------------------------------------------------------------------------------------------------

/// One process of a storage node: its own clock, its own view of its lease and of the fences.
struct Process {
  std::string address;
  double rate = 1;  ///< of its clock
  Incarnation incarnation{};
  PeerId peer{};  ///< 0: not connected
  uint64_t asked_ns = 0;
  uint64_t lease_until_ns = 0;
  wire::FenceSet fences{};
  bool running = true;

  /// A write of this session would be executed.
  bool serves(SessionId session, uint64_t now_ns) const {
    return running && now_ns < lease_until_ns && !fences.fenced(session);
  }
};

struct FencingModel : ::testing::TestWithParam<int> {
  FencingModel() : random(testing::test_seed(static_cast<uint64_t>(GetParam()))) { restart(); }

  static CoreOptions options() {
    CoreOptions options = CoreHarness::open_at_once();
    options.initial_nodes = 1;
    return options;
  }

  void restart() {
    const uint64_t now_ns = h ? h->now_ns + random.below(2 * kLease) : 1'000'000'000;
    const Buffer state = durable.state;
    ASSERT_TRUE(Core::check_state(state).ok());
    h = std::make_unique<CoreHarness>(options(), &durable, state);
    h->now_ns = now_ns;
    h->core.on_time(now_ns);
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
    if (opcode == wire::Opcode::kNodeRegistered) {
      const auto registered = h->take<NodeRegistered>(process.peer);
      process.incarnation = registered->incarnation;
      process.fences = registered->fences;
      lease();
    } else if (opcode == wire::Opcode::kNodeRenewed) {
      static_cast<void>(h->take<wire::NodeRenewed>(process.peer));
      lease();
    } else if (opcode == wire::Opcode::kFence) {
      const auto fence = h->take<Fence>(process.peer);
      process.fences = fence->fences;
      h->deliver(process.peer, CoreHarness::encoded(FenceInstalled{}, fence.sequence));
    } else if (opcode == wire::Opcode::kAcceptLoss) {
      const auto accept = h->take<wire::AcceptLoss>(process.peer);
      h->deliver(process.peer, CoreHarness::encoded(wire::LossAccepted{}, accept.sequence));
    } else if (opcode == wire::Opcode::kInstallTable) {
      const auto install = h->take<wire::InstallTable>(process.peer);
      h->deliver(process.peer, CoreHarness::encoded(wire::TableInstalled{}, install.sequence));
    } else if (opcode == wire::Opcode::kError) {
      const StatusCode code = h->take<NodeRegistered>(process.peer).error.code();
      if (code == StatusCode::kUnavailable) {  // other nodes have not reported since the restart
        h->core.peer_lost(process.peer);
        process.peer = PeerId(0);
        return;
      }
      EXPECT_EQ(code, StatusCode::kFenced) << "it was replaced";
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
      h->core.peer_lost(process.peer);
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
      const auto opened = h->call<wire::SessionOpened>(peer, OpenSession{"model"});
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
    for (const RecoveryTask& task : h->core.recovery_tasks(random.below(20))) {
      if (random.one_in(4)) continue;
      if (task.kind == RecoveryTask::Kind::kOpen) {
        h->core.recovered(task.id, random.one_in(2), h->now_ns);
      } else {
        h->core.recovery_cleared(task.id);
      }
    }
    if (h->core.recovery_scan_due()) {
      for (const Process& process : processes) {
        for (uint64_t session = 1; session <= older.value; ++session) {
          ASSERT_FALSE(process.serves(SessionId(session), h->now_ns)) << "session " << session << " of an older epoch";
        }
      }
      h->core.recovery_scan_done(h->now_ns);
    }
    for (const NodeStatus& node : h->core.nodes()) {
      if (node.info.state == NodeState::kLost && random.one_in(4)) h->core.accept_loss(node.info.id, [](Status) {});
    }
  }

  /// The invariant: what is handed to recovery can be written by nobody else.
  void check() {
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
  RecordingDurable durable;
  std::unique_ptr<CoreHarness> h;
  std::vector<Process> processes;
  std::vector<PeerId> clients;
  SessionId newest;  ///< of all sessions ever opened
  SessionId older;   ///< of those of earlier epochs
  uint64_t handed = 0, counted_by_lease = 0;
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
  EXPECT_GT(counted_by_lease, 0u) << "and a process that runs on without a lease";
  if (HasFatalFailure()) return;
  // In the end everything is recovered, if only one process at each address goes on.
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
