#include "storage-node/src/request/manager_protocol.h"

#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

class ManagerProtocolTest : public NodeFixture {
 protected:
  ManagerProtocolTest()
      : manager(1),
        protocol(*registry, sessions, *epoch_thread, {"tcp://127.0.0.1:1", "", 1u << 20},
                 [this](Bytes message) { static_cast<void>(manager.send(message)); }) {}

  template <wire::Message M>
  Status receive(uint64_t sequence, const M& message) {
    Buffer buffer;
    wire::encode_message(message, sequence, buffer);
    return protocol.received(buffer, now_ns);
  }
  void register_node() {
    protocol.connected(now_ns);
    ASSERT_TRUE(receive(1, registered()).ok());
    manager.sent.clear();
  }
  static wire::InstallTable install(uint64_t id) {
    return {{TableId(id), "t" + std::to_string(id), TableKind::kTransactional, schema("x")}, catalog().shards};
  }

  static wire::RegisterNodeReply with_lease(uint64_t lease_ns) {
    wire::RegisterNodeReply answer = registered();
    answer.lease_ns = lease_ns;
    return answer;
  }
  void run_steps() {
    for (int i = 0; i < 20 && protocol.step(now_ns).value(); ++i) {
    }
  }
  const Table* served(TableId id) {
    const EpochGuard guard(*epoch_thread);
    const auto* found = registry->view().find(id);
    return found == nullptr ? nullptr : (*found)->table.get();
  }
  std::string name_of(TableId id) {
    const EpochGuard guard(*epoch_thread);
    const auto* found = registry->view().find(id);
    if (found != nullptr) return (*found)->info.name;
    const wire::TableInfo* const deferred = registry->view().find_deferred(id);
    return deferred == nullptr ? std::string() : deferred->name;
  }
  Status serving() {
    const EpochGuard guard(*epoch_thread);
    return registry->check_serving(now_ns);
  }

  RecordingPeer manager;  // receives the messages for the commit manager
  ManagerProtocol protocol;
  uint64_t now_ns = 1'000'000;
};

TEST_F(ManagerProtocolTest, RegistersAndServes) {
  protocol.connected(now_ns);
  EXPECT_EQ(manager.answer<wire::RegisterNode>(1).address, "tcp://127.0.0.1:1");
  EXPECT_TRUE(receive(9, wire::Publish{publication(2, 20)}) == StatusCode::kMalformed) << "not registered yet";
  EXPECT_FALSE(registry->in_service());
  ASSERT_TRUE(receive(1, registered()).ok());
  EXPECT_TRUE(registry->in_service());
  const EpochGuard guard(*epoch_thread);
  EXPECT_NE(registry->view().find(kAccounts), nullptr);
  EXPECT_EQ(registry->publication().number, 1u);
}

TEST_F(ManagerProtocolTest, RepeatedRegistrationNamesTheSameStart) {
  protocol.connected(now_ns);
  const auto first = manager.answer<wire::RegisterNode>(1);
  protocol.disconnected();
  protocol.connected(now_ns);
  const auto second = manager.answer<wire::RegisterNode>(2);
  EXPECT_NE(first.start, 0u);
  EXPECT_EQ(second.start, first.start);
  EXPECT_EQ(second.incarnation, Incarnation(0));
  manager.sent.clear();
  ManagerProtocol other(*registry, sessions, *epoch_thread, {"tcp://127.0.0.1:1", "", 1u << 20},
                        [this](Bytes message) { static_cast<void>(manager.send(message)); });
  other.connected(now_ns);
  EXPECT_NE(manager.answer<wire::RegisterNode>(1).start, first.start) << "another process";
}

TEST_F(ManagerProtocolTest, RefusedRegistrationReturnsTheReason) {
  protocol.connected(now_ns);
  EXPECT_TRUE(receive(1, wire::Error{Status(StatusCode::kOverloaded, "too many nodes")}) == StatusCode::kOverloaded);
  EXPECT_FALSE(registry->in_service());
}

TEST_F(ManagerProtocolTest, IncarnationOutOfRangeIsRefused) {
  protocol.connected(now_ns);
  wire::RegisterNodeReply answer = registered();
  answer.incarnation = Incarnation(0);
  const Status status = receive(1, answer);
  EXPECT_TRUE(status == StatusCode::kInvalidArgument);
}

TEST_F(ManagerProtocolTest, ReportsTheNewestHistoryPoint) {
  protocol.connected(now_ns);
  EXPECT_FALSE(manager.answer<wire::RegisterNode>(1).known.cluster);
  wire::RegisterNodeReply answer = registered();
  answer.history.state = 4;
  answer.history.log = 40;
  answer.lease_ns = 1'000'000'000;
  ASSERT_TRUE(receive(1, answer).ok());
  ASSERT_TRUE(receive(2, wire::Publish{publication(2, 20), 6, 60}).ok());
  ASSERT_TRUE(receive(3, wire::Publish{publication(3, 20), 5, 50}).ok());
  EXPECT_EQ(protocol.known().state, 6u);
  EXPECT_EQ(protocol.known().log, 60u);
  now_ns += 300'000'000;
  ASSERT_TRUE(protocol.step(now_ns).ok());
  ASSERT_TRUE(receive(2, wire::RenewNodeReply{7, 70}).ok());
  protocol.disconnected();
  manager.sent.clear();
  protocol.connected(now_ns);
  const wire::HistoryPoint known = manager.answer<wire::RegisterNode>(3).known;
  EXPECT_EQ(known.cluster, kCluster);
  EXPECT_EQ(known.epoch, 1u);
  EXPECT_EQ(known.random, 101u);
  EXPECT_EQ(known.state, 7u);
  EXPECT_EQ(known.log, 70u);
}

TEST_F(ManagerProtocolTest, RefusesCommitManagersThatAreNotItsOwnAndKeepsItsTables) {
  wire::RegisterNodeReply reply = registered();
  reply.manager_epoch = 2;
  reply.history = {kCluster, {{1, 101, 1}, {2, 102, 5}}, 9};
  protocol.connected(now_ns);
  ASSERT_TRUE(receive(1, reply).ok());
  uint64_t sequence = 1;
  const auto code = [&](uint64_t epoch, const wire::ClusterHistory& history) {
    protocol.disconnected();
    protocol.connected(now_ns);
    wire::RegisterNodeReply answer = registered();
    answer.manager_epoch = epoch;
    answer.history = history;
    answer.catalog.tables.clear();  // if it were applied, the node would drop its tables
    const Status status = receive(++sequence, answer);
    EXPECT_EQ(protocol.known().random, 102u);
    EXPECT_FALSE(protocol.registered());
    const EpochGuard guard(*epoch_thread);
    EXPECT_NE(registry->view().find(kAccounts), nullptr);
    return status.code();
  };
  EXPECT_EQ(code(3, {{9, 9}, {{1, 101, 1}, {2, 102, 5}, {3, 103, 10}}, 10}), StatusCode::kWrongCluster);
  EXPECT_EQ(code(1, {kCluster, {{1, 101, 1}}, 4}), StatusCode::kWrongCluster) << "a lower epoch";
  EXPECT_EQ(code(2, {kCluster, {{1, 101, 1}, {2, 999, 5}}, 5}), StatusCode::kWrongCluster) << "a foreign epoch";
  EXPECT_EQ(code(3, {kCluster, {{1, 101, 1}, {2, 999, 5}, {3, 103, 6}}, 6}), StatusCode::kWrongCluster)
      << "a higher epoch that went on from a foreign one";
  EXPECT_EQ(code(3, {kCluster, {{1, 101, 1}, {2, 102, 5}, {3, 103, 9}}, 9}), StatusCode::kWrongCluster)
      << "it went on from state 8, and the node was told state 9";
  EXPECT_EQ(code(3, {}), StatusCode::kMalformed) << "no history";
  EXPECT_EQ(code(4, {kCluster, {{1, 101, 1}, {2, 102, 5}, {3, 103, 10}}, 10}), StatusCode::kMalformed);
  protocol.disconnected();
  protocol.connected(now_ns);
  reply.manager_epoch = 3;
  reply.history = {kCluster, {{1, 101, 1}, {2, 102, 5}, {3, 103, 10}}, 10};
  EXPECT_TRUE(receive(++sequence, reply).ok()) << "the right one is back";
  EXPECT_EQ(protocol.known().epoch, 3u);
}

TEST_F(ManagerProtocolTest, CatalogChangeIsAnsweredOnlyWhenEveryThreadHasSeenIt) {
  register_node();
  EpochThread other(epochs, "network");
  {
    const EpochGuard batch(other);  // a network thread in the middle of a batch
    ASSERT_TRUE(receive(5, install(3)).ok());
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(protocol.step(now_ns).value());
    EXPECT_TRUE(manager.sent.empty());
  }
  for (int i = 0; i < 10 && protocol.step(now_ns).value(); ++i) {
  }
  manager.answer<wire::InstallTableReply>(5);
  ASSERT_TRUE(receive(6, wire::RemoveTable{TableId(3)}).ok());
  for (int i = 0; i < 10 && protocol.step(now_ns).value(); ++i) {
  }
  manager.answer<wire::RemoveTableReply>(6);
  const EpochGuard guard(*epoch_thread);
  EXPECT_EQ(registry->view().find(TableId(3)), nullptr);
}

TEST_F(ManagerProtocolTest, APublicationIsAcknowledgedOnlyWhenEveryThreadHasSeenIt) {
  register_node();
  EpochThread other(epochs, "network");
  {
    const EpochGuard batch(other);  // it may name intents by the previous publication
    ASSERT_TRUE(receive(5, wire::Publish{publication(2, 20)}).ok());
    ASSERT_TRUE(receive(6, wire::Publish{publication(3, 30)}).ok());
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(protocol.step(now_ns).value());
    EXPECT_TRUE(manager.sent.empty());
  }
  run_steps();
  ASSERT_EQ(manager.sent.size(), 1u) << "the newest of those that come due";
  const auto installed = manager.answer<wire::PublishReply>(6);
  EXPECT_EQ(installed.epoch, 1u);
  EXPECT_EQ(installed.number, 3u);
}

TEST_F(ManagerProtocolTest, OnlyThePublicationInForceIsAcknowledged) {
  register_node();
  ASSERT_TRUE(receive(5, wire::Publish{publication(7, 20)}).ok());
  run_steps();
  manager.sent.clear();
  ASSERT_TRUE(receive(6, wire::Publish{publication(6, 20)}).ok());
  Publication lower = publication(9, 90);
  lower.cm_epoch = 0;
  ASSERT_TRUE(receive(7, wire::Publish{lower}).ok());
  run_steps();
  EXPECT_TRUE(manager.sent.empty()) << "an older one, and one of a lower epoch";
  ASSERT_TRUE(receive(8, wire::Publish{publication(7, 20)}).ok());
  run_steps();
  EXPECT_EQ(manager.answer<wire::PublishReply>(8).number, 7u) << "it came again: so did the reply";
}

TEST_F(ManagerProtocolTest, IntentsOfIdleSessionsAreSweptASecondAfterTheLastTime) {
  register_node();
  RecordingPeer client(5);
  attach(client, 5);
  const Buffer one = row(1);
  run(client, std::pair(uint64_t{1}, wire::Write{TransactionId(11),
                                                 Snapshot(Version(10)),
                                                 {{wire::WriteKind::kInsert, {kAccounts, Key(1)}, one}}}));
  ASSERT_EQ(sessions.intents(), 1u);
  now_ns += kMinIntentSweepIntervalNs;
  run_steps();
  EXPECT_EQ(sessions.intents(), 1u) << "no publication has come";
  ASSERT_TRUE(receive(5, wire::Publish{publication(2, 20)}).ok());
  run_steps();
  EXPECT_EQ(sessions.intents(), 1u) << "it has written something since the last round, so it may look for itself";
  ASSERT_TRUE(receive(6, wire::Publish{publication(3, 20)}).ok());
  now_ns += kMinIntentSweepIntervalNs - 1;
  run_steps();
  EXPECT_EQ(sessions.intents(), 1u) << "not yet";
  now_ns += 1;
  run_steps();
  EXPECT_EQ(sessions.intents(), 0u);
  EXPECT_EQ(intent_pool.used_bytes(), 0u);
}

TEST_F(ManagerProtocolTest, ATableThatDoesNotFitIsAnError) {
  register_node();
  Status failed;
  for (uint64_t id = 10; failed.ok() && id < 100'000; ++id) {
    ASSERT_TRUE(receive(id, install(id)).ok());
    ByteReader reader(manager.sent.empty() ? Bytes() : Bytes(manager.sent.back()));
    wire::Envelope envelope;
    if (!manager.sent.empty() && wire::decode_envelope(reader, envelope).ok() &&
        envelope.opcode == wire::Opcode::kError) {
      failed = manager.answer<wire::Error>(id).status;
    }
  }
  EXPECT_TRUE(failed == StatusCode::kNoSpace) << failed.to_string();
}

TEST_F(ManagerProtocolTest, RegistersAgainWithItsIncarnationAndTakesChanges) {
  register_node();
  protocol.disconnected();
  protocol.connected(now_ns);
  EXPECT_EQ(manager.answer<wire::RegisterNode>(2).incarnation, kIncarnation);
  const Table* const kept = served(kAccounts);
  wire::RegisterNodeReply answer = registered();
  answer.catalog.tables.erase(answer.catalog.tables.begin() + 1);  // counters were dropped
  answer.catalog.tables.push_back(install(3).table);
  answer.catalog.shards.version = 4;
  answer.catalog.shards.owners[0] = NodeId(2);
  answer.publication = {};  // a restarted commit manager has none yet
  answer.publication.cm_epoch = 2;
  answer.fences = {SessionId(9), {}};
  ASSERT_TRUE(receive(2, answer).ok());
  EXPECT_EQ(served(kAccounts), kept) << "with its records";
  EXPECT_EQ(served(kCounters), nullptr);
  EXPECT_NE(served(TableId(3)), nullptr);
  const EpochGuard guard(*epoch_thread);
  EXPECT_EQ(registry->view().shards.version, 4u);
  EXPECT_FALSE(registry->view().owned[0]);
  EXPECT_TRUE(registry->view().fences.fenced(SessionId(9)));
  EXPECT_EQ(registry->publication().number, 1u) << "the old one stays";
}

TEST_F(ManagerProtocolTest, FullNodeRegistersAgainAndDefersTables) {
  register_node();
  protocol.disconnected();
  std::vector<std::byte*> taken;
  while (std::byte* const block = pool->allocate(PagePool::kMinBlockBytes, Reserve::kWrite)) taken.push_back(block);
  protocol.connected(now_ns);
  wire::RegisterNodeReply answer = with_lease(1'000'000'000);
  const wire::TableInfo made_meanwhile = install(3).table;
  answer.catalog.tables.push_back(made_meanwhile);
  ASSERT_TRUE(receive(2, answer).ok()) << "what it has, it goes on serving";
  EXPECT_NE(served(kAccounts), nullptr);
  EXPECT_EQ(served(made_meanwhile.id), nullptr);
  while (protocol.step(now_ns).value()) {
  }
  ASSERT_TRUE(serving().ok());
  registry->grant_lease(UINT64_MAX);  // batches use the real clock

  RecordingPeer client(5);
  attach(client, 5);
  const wire::RecordId record{made_meanwhile.id, Key(1)};
  const Buffer one = row(1);
  const wire::Write insert{TransactionId(11), Snapshot(Version(10)), {{wire::WriteKind::kInsert, record, one}}};
  run(client, std::pair(uint64_t{1}, insert), std::pair(uint64_t{2}, wire::Read{Snapshot(Version(10)), {record}}),
      std::pair(uint64_t{3}, wire::Revert{TransactionId(11), {record}}),
      std::pair(uint64_t{4}, wire::PlainRead{{record}}));
  EXPECT_EQ(client.answer<wire::WriteReply>(1).results[0].code, StatusCode::kNoSpace);
  EXPECT_EQ(client.answer<wire::ReadReply>(2).results[0].code, StatusCode::kNotFound) << "nothing was ever put there";
  EXPECT_EQ(client.answer<wire::RevertReply>(3).results[0].code, StatusCode::kOk);
  EXPECT_EQ(client.answer<wire::PlainReadReply>(4).results[0].code, StatusCode::kWrongTableKind);

  for (std::byte* const block : taken) pool->release(block, PagePool::kMinBlockBytes);
  now_ns += answer.lease_ns / 2;
  ASSERT_TRUE(protocol.step(now_ns).ok());
  EXPECT_NE(served(made_meanwhile.id), nullptr) << "made with the next renewal";
  run(client, std::pair(uint64_t{5}, insert));
  EXPECT_EQ(client.answer<wire::WriteReply>(5).results[0].code, StatusCode::kOk);
}

TEST_F(ManagerProtocolTest, ATableThatWaitsForMemoryCanBeDropped) {
  register_node();
  protocol.disconnected();
  std::vector<std::byte*> taken;
  while (std::byte* const block = pool->allocate(PagePool::kMinBlockBytes, Reserve::kWrite)) taken.push_back(block);
  protocol.connected(now_ns);
  wire::RegisterNodeReply answer = with_lease(1'000'000'000);
  answer.catalog.tables.push_back(install(3).table);
  ASSERT_TRUE(receive(2, answer).ok());
  ASSERT_TRUE(receive(7, wire::RemoveTable{TableId(3)}).ok());
  for (std::byte* const block : taken) pool->release(block, PagePool::kMinBlockBytes);
  now_ns += answer.lease_ns / 2;
  ASSERT_TRUE(protocol.step(now_ns).ok());
  EXPECT_EQ(served(TableId(3)), nullptr);
}

TEST_F(ManagerProtocolTest, ARenamedTableKeepsItsRecords) {
  register_node();
  const Table* const kept = served(kAccounts);
  wire::InstallTable rename{catalog().tables[0], catalog().shards};
  ASSERT_EQ(rename.table.id, kAccounts);
  rename.table.name = "ledger";
  ASSERT_TRUE(receive(7, rename).ok());
  run_steps();
  static_cast<void>(manager.answer<wire::InstallTableReply>(7));
  EXPECT_EQ(served(kAccounts), kept);
  EXPECT_EQ(name_of(kAccounts), "ledger");
  const auto tables = registry->tables();
  EXPECT_EQ(std::ranges::count(*tables, "ledger", [](const auto& table) { return table->info.name; }), 1)
      << "statistics have the new name";
  // A registration brings the name that the node has missed.
  protocol.disconnected();
  protocol.connected(now_ns);
  wire::RegisterNodeReply answer = registered();
  ASSERT_EQ(answer.catalog.tables[0].id, kAccounts);
  answer.catalog.tables[0].name = "journal";
  ASSERT_TRUE(receive(2, answer).ok());
  EXPECT_EQ(served(kAccounts), kept);
  EXPECT_EQ(name_of(kAccounts), "journal");
}

TEST_F(ManagerProtocolTest, ATableThatWaitsForMemoryCanBeRenamed) {
  register_node();
  protocol.disconnected();
  std::vector<std::byte*> taken;
  while (std::byte* const block = pool->allocate(PagePool::kMinBlockBytes, Reserve::kWrite)) taken.push_back(block);
  protocol.connected(now_ns);
  wire::RegisterNodeReply answer = with_lease(1'000'000'000);
  wire::InstallTable rename = install(3);
  answer.catalog.tables.push_back(rename.table);
  ASSERT_TRUE(receive(2, answer).ok());
  rename.table.name = "renamed";
  ASSERT_TRUE(receive(7, rename).ok());
  run_steps();
  static_cast<void>(manager.answer<wire::InstallTableReply>(7));
  EXPECT_EQ(served(TableId(3)), nullptr) << "the rename makes no table";
  for (std::byte* const block : taken) pool->release(block, PagePool::kMinBlockBytes);
  now_ns += answer.lease_ns / 2;
  ASSERT_TRUE(protocol.step(now_ns).ok());
  EXPECT_NE(served(TableId(3)), nullptr);
  EXPECT_EQ(name_of(TableId(3)), "renamed");
}

TEST_F(ManagerProtocolTest, ANewEpochsPublicationReplacesAnyOlder) {
  register_node();
  ASSERT_TRUE(receive(2, wire::Publish{publication(100, 20)}).ok());
  Publication next = publication(1, 15);
  next.cm_epoch = 2;
  ASSERT_TRUE(receive(3, wire::Publish{next}).ok());
  const EpochGuard guard(*epoch_thread);
  EXPECT_EQ(registry->publication(), next);
}

TEST_F(ManagerProtocolTest, RegistrationUnderAnotherNumberIsRefused) {
  register_node();
  protocol.disconnected();
  protocol.connected(now_ns);
  wire::RegisterNodeReply answer = registered();
  answer.incarnation = Incarnation(8);
  EXPECT_TRUE(receive(2, answer) == StatusCode::kInvalidArgument);
  answer.incarnation = kIncarnation;
  answer.node = NodeId(2);
  EXPECT_TRUE(receive(2, answer) == StatusCode::kInvalidArgument);
}

TEST_F(ManagerProtocolTest, ReplacedIncarnationGetsFenced) {
  register_node();
  protocol.disconnected();
  protocol.connected(now_ns);
  EXPECT_TRUE(receive(2, wire::Error{Status(StatusCode::kFenced, "replaced")}) == StatusCode::kFenced);
}

TEST_F(ManagerProtocolTest, TheLeaseRunsFromTheMomentOfTheRequest) {
  protocol.connected(now_ns);
  const uint64_t asked = now_ns;
  now_ns += 300;  // the reply arrives late
  ASSERT_TRUE(receive(1, with_lease(4'000)).ok());
  EXPECT_TRUE(registry->lease_holds(asked + 3'999));
  EXPECT_FALSE(registry->lease_holds(asked + 4'000));

  EXPECT_EQ(protocol.next_step_ns(), asked + 1'000);
  manager.sent.clear();
  now_ns = asked + 999;
  ASSERT_TRUE(protocol.step(now_ns).ok());
  EXPECT_TRUE(manager.sent.empty());
  now_ns = asked + 1'100;
  ASSERT_TRUE(protocol.step(now_ns).ok());
  manager.answer<wire::RenewNode>(2);
  now_ns += 500;
  EXPECT_TRUE(receive(3, wire::RenewNodeReply{}) == StatusCode::kMalformed) << "no request has this sequence number";
  ASSERT_TRUE(receive(2, wire::RenewNodeReply{}).ok());
  ASSERT_TRUE(receive(2, wire::RenewNodeReply{}).ok()) << "it came twice";
  ASSERT_TRUE(receive(1, with_lease(9'000)).ok()) << "so did this";
  EXPECT_TRUE(registry->lease_holds(asked + 1'100 + 3'999));
  EXPECT_FALSE(registry->lease_holds(asked + 1'100 + 4'000));
}

TEST_F(ManagerProtocolTest, ExpiredLeaseIsGrantedBehindTheBarrier) {
  protocol.connected(now_ns);
  ASSERT_TRUE(receive(1, with_lease(4'000)).ok());
  EpochThread other(epochs, "network");
  {
    const EpochGuard batch(other);
    now_ns += 5'000;
    ASSERT_TRUE(protocol.step(now_ns).ok());
    ASSERT_TRUE(receive(2, wire::RenewNodeReply{}).ok());
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(protocol.step(now_ns).value());
    EXPECT_FALSE(registry->lease_holds(now_ns));
  }
  for (int i = 0; i < 10 && protocol.step(now_ns).value(); ++i) {
  }
  EXPECT_TRUE(registry->lease_holds(now_ns));
}

TEST_F(ManagerProtocolTest, SilentManagerIsDisconnected) {
  protocol.connected(now_ns);
  ASSERT_TRUE(receive(1, with_lease(4'000)).ok());
  now_ns += 1'000;
  ASSERT_TRUE(protocol.step(now_ns).ok());  // sends the renewal
  EXPECT_EQ(protocol.next_step_ns(), now_ns + kMinManagerTimeoutNs);
  EXPECT_TRUE(protocol.step(now_ns + kMinManagerTimeoutNs).ok());
  EXPECT_TRUE(protocol.step(now_ns + kMinManagerTimeoutNs + 1).status() == StatusCode::kTimeout);
}

TEST_F(ManagerProtocolTest, AcceptedLossIsAnsweredWhenTheShardsAreServed) {
  protocol.connected(now_ns);
  wire::RegisterNodeReply answer = registered();
  answer.memory_lost = true;
  ASSERT_TRUE(receive(1, answer).ok());
  EXPECT_TRUE(serving() == StatusCode::kUnavailable);
  ASSERT_TRUE(receive(5, wire::AcceptLoss{}).ok());
  EXPECT_TRUE(serving().ok());
  for (int i = 0; i < 10 && protocol.step(now_ns).value(); ++i) {
  }
  manager.answer<wire::AcceptLossReply>(5);
}

TEST_F(ManagerProtocolTest, FencesThatContradictThemselvesAreMalformed) {
  register_node();
  EXPECT_TRUE(receive(5, wire::Fence{{SessionId(3), {SessionId(4)}}}) == StatusCode::kMalformed);
}

}  // namespace
}  // namespace loam::storage
