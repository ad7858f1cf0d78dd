#include "storage-node/src/request/manager_link.h"

#include "storage-node/src/request/node_fixture.h"

namespace loam::storage {
namespace {

class ManagerLinkTest : public NodeFixture {
 protected:
  ManagerLinkTest()
      : manager(1),
        link(*registry, sessions, *epoch_thread, {"tcp://127.0.0.1:1", "", 1u << 20},
             [this](Bytes message) { static_cast<void>(manager.send(message)); }) {}

  template <wire::Message M>
  Status receive(uint64_t sequence, const M& message) {
    Buffer buffer;
    wire::encode_message(message, sequence, buffer);
    return link.received(buffer, now_ns);
  }
  void register_node() {
    link.connected(now_ns);
    ASSERT_TRUE(receive(1, registered()).ok());
    manager.sent.clear();
  }
  static wire::InstallTable install(uint64_t id) {
    return {{TableId(id), "t" + std::to_string(id), TableKind::kTransactional, schema("x")}, catalog().shards};
  }

  RecordingPeer manager;  // what the commit manager is sent
  ManagerLink link;
  uint64_t now_ns = 1'000'000;
};

TEST_F(ManagerLinkTest, RegistersAndServes) {
  link.connected(now_ns);
  EXPECT_EQ(manager.answer<wire::RegisterNode>(1).address, "tcp://127.0.0.1:1");
  EXPECT_TRUE(receive(9, wire::Publish{publication(2, 20)}) == StatusCode::kMalformed) << "not registered yet";
  EXPECT_FALSE(registry->in_service());
  ASSERT_TRUE(receive(1, registered()).ok());
  EXPECT_TRUE(registry->in_service());
  const EpochGuard guard(*epoch_thread);
  EXPECT_NE(registry->view().find(kAccounts), nullptr);
  EXPECT_EQ(registry->publication().number, 1u);
}

TEST_F(ManagerLinkTest, RefusedRegistrationIsTheReason) {
  link.connected(now_ns);
  EXPECT_TRUE(receive(1, wire::Error{Status(StatusCode::kOverloaded, "too many nodes")}) == StatusCode::kOverloaded);
  EXPECT_FALSE(registry->in_service());
}

TEST_F(ManagerLinkTest, IncarnationOutOfRangeIsRefused) {
  link.connected(now_ns);
  const Status status = receive(1, wire::NodeRegistered{NodeId(1), Incarnation(0), 1, catalog(), publication(1, 10)});
  EXPECT_TRUE(status == StatusCode::kInvalidArgument);
}

TEST_F(ManagerLinkTest, CatalogChangeIsAnsweredOnlyWhenEveryThreadHasSeenIt) {
  register_node();
  EpochThread other(epochs, "network");
  {
    const EpochGuard batch(other);  // a network thread in the middle of a batch
    ASSERT_TRUE(receive(5, install(3)).ok());
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(link.step(now_ns).value());
    EXPECT_TRUE(manager.sent.empty());
  }
  for (int i = 0; i < 10 && link.step(now_ns).value(); ++i) {
  }
  manager.answer<wire::TableInstalled>(5);
  ASSERT_TRUE(receive(6, wire::RemoveTable{TableId(3)}).ok());
  for (int i = 0; i < 10 && link.step(now_ns).value(); ++i) {
  }
  manager.answer<wire::TableRemoved>(6);
  const EpochGuard guard(*epoch_thread);
  EXPECT_EQ(registry->view().find(TableId(3)), nullptr);
}

TEST_F(ManagerLinkTest, ATableThatDoesNotFitIsAnError) {
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

}  // namespace
}  // namespace loam::storage
