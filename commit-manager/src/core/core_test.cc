// The dispatch of messages: hostile bytes, wrong peers, and a random run of the whole core.
#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"
#include "common/testing/random.h"

namespace loam::commit {
namespace {

using testing::Random;

/// One message of each kind that the core accepts, with a value in every field.
std::vector<Buffer> all_messages() {
  std::vector<Buffer> messages;
  uint64_t sequence = 1'000;
  const auto add = [&](const auto& message) { messages.push_back(CoreHarness::encoded(message, ++sequence)); };
  add(wire::OpenSession{"a client", SessionId(1), 1});
  add(wire::Begin{2, true});
  add(wire::Complete{{{TransactionId(1), true}, {TransactionId(2), false}}});
  add(wire::ReleaseSnapshots{{1, 2, 3}});
  add(wire::RenewSession{7, {1, 2, 3}});
  add(wire::GetOutcomes{{TransactionId(1), TransactionId(2)}});
  add(wire::GetCatalog{});
  add(wire::CreateTable{"accounts", TableKind::kTransactional, test_schema()});
  add(wire::DropTable{"accounts"});
  add(wire::RenameTable{"accounts", "ledger"});
  add(wire::AddField{TableId(1'024), test_schema().with_added(0)});
  add(wire::CloseSession{});
  add(wire::RegisterNode{"tcp://127.0.0.1:7401", "127.0.0.1:7411", 1 << 20});
  add(wire::RenewNode{});
  add(wire::FenceReply{});
  add(wire::AcceptLossReply{});
  add(wire::PublishReply{1, 2});
  add(wire::InstallTableReply{});
  add(wire::RemoveTableReply{});
  add(wire::Error{Status(StatusCode::kNoSpace, "full")});
  return messages;
}

TEST(Core, TruncatedMessagesCloseTheConnectionAndChangeNothing) {
  for (const Buffer& message : all_messages()) {
    for (size_t size = 0; size < message.size(); ++size) {
      for (const bool client : {true, false}) {
        CoreHarness h;
        const PeerId peer = client ? h.client() : h.node("tcp://a:1");
        const uint64_t version = h.core.catalog().version;
        const Buffer cut(message.begin(), message.begin() + static_cast<ptrdiff_t>(size));
        h.deliver(peer, cut);
        ASSERT_EQ(h.outbox.closed.at(peer), StatusCode::kMalformed) << size << " of opcode " << int(message[0]);
        const auto answer = h.receive<wire::Error>(peer);
        ASSERT_EQ(answer.error.code(), StatusCode::kMalformed) << "it is told why";
        h.core.check_invariants();
        ASSERT_EQ(h.core.statistics().last_transaction, 0u);
        ASSERT_LE(h.core.catalog().version, version + 1) << "at most the node's death";
      }
    }
  }
}

TEST(Core, TrailingBytesAreMalformed) {
  for (const Buffer& message : all_messages()) {
    CoreHarness h;
    const auto opcode = static_cast<wire::Opcode>(message[0]);
    const bool open = opcode == wire::Opcode::kOpenSession || opcode == wire::Opcode::kRegisterNode;
    const bool node = opcode == wire::Opcode::kInstallTableReply || opcode == wire::Opcode::kRemoveTableReply ||
                      opcode == wire::Opcode::kFenceReply || opcode == wire::Opcode::kAcceptLossReply ||
                      opcode == wire::Opcode::kPublishReply || opcode == wire::Opcode::kRenewNode ||
                      opcode == wire::Opcode::kError;
    const PeerId peer = open ? h.connect() : node ? h.node("tcp://a:1") : h.client();
    Buffer longer = message;
    longer.push_back(std::byte{0});
    h.deliver(peer, longer);
    EXPECT_EQ(h.outbox.closed.at(peer), StatusCode::kMalformed) << wire::to_string(opcode);
  }
}

TEST(Core, MessagesForOthersAreRefused) {
  for (int opcode = 0; opcode < 256; ++opcode) {
    CoreHarness h;
    const PeerId peer = h.connect();
    const Buffer message = {static_cast<std::byte>(opcode), std::byte{1}};
    h.deliver(peer, message);
    if (opcode == static_cast<int>(wire::Opcode::kGetCatalog)) {
      EXPECT_TRUE(h.receive<wire::GetCatalogReply>(peer).ok());
    } else {
      EXPECT_TRUE(h.outbox.closed.contains(peer)) << opcode;
    }
  }
}

TEST(Core, WhatFollowsABadMessageInItsFrameIsNotExecuted) {
  CoreHarness h;
  h.node("tcp://a:1");  // where the transaction may have written
  const PeerId peer = h.client();
  const Buffer good = CoreHarness::encoded(wire::Begin{1, false}, 5);
  const Buffer bad = {std::byte{200}, std::byte{1}};
  const Buffer more = CoreHarness::encoded(wire::Begin{1, false}, 6);
  const std::vector<Bytes> frame = {good, bad, more};
  h.core.on_messages(peer, frame, h.now_ns);
  EXPECT_EQ(h.core.statistics().begins, 1u);
  EXPECT_EQ(h.core.statistics().malformed, 1u);
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 1u);
}

TEST(Core, OversizedRequestsAreMalformed) {
  CoreHarness h;
  const PeerId peer = h.client();
  wire::ReleaseSnapshots released;
  for (uint64_t number = 1; number <= 300'000; ++number) released.numbers.push_back(number);
  h.post(peer, released);
  EXPECT_FALSE(h.outbox.closed.contains(peer)) << "large, and within the limit";
  for (uint64_t number = 1; number <= 100'000; ++number) released.numbers.push_back(number);
  h.post(peer, released);
  ASSERT_TRUE(h.outbox.closed.contains(peer));
  EXPECT_EQ(h.outbox.closed.at(peer), StatusCode::kMalformed);
}

TEST(Core, AnAcknowledgementOfNothingIsMalformed) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  h.deliver(node, CoreHarness::encoded(wire::InstallTableReply{}, 77));
  EXPECT_EQ(h.outbox.closed.at(node), StatusCode::kMalformed);
  EXPECT_EQ(h.core.statistics().nodes_live, 1u) << "its lease still runs";
  h.run_for(2 * CoreHarness::kLeaseNs);
  EXPECT_EQ(h.core.statistics().nodes_live, 0u);
}

TEST(Core, SurvivesFlippedBytes) {
  Random random(testing::test_seed(11));
  const std::vector<Buffer> messages = all_messages();
  CoreHarness h;
  std::vector<PeerId> peers;
  for (int round = 0; round < 20'000; ++round) {
    if (peers.size() < 6)
      peers.push_back(random.one_in(3) ? h.node("tcp://n:" + std::to_string(round % 3)) : h.client());
    const PeerId peer = peers[random.below(peers.size())];
    Buffer message = messages[random.below(messages.size())];
    for (uint64_t flips = random.below(4); flips > 0; --flips) {
      message[random.below(message.size())] ^= static_cast<std::byte>(1u << random.below(8));
    }
    h.deliver(peer, message);
    h.outbox.sent.clear();
    std::erase_if(peers, [&](PeerId p) { return h.outbox.closed.contains(p); });
    if (round % 500 == 0) h.core.check_invariants();
    h.now_ns += 1'000'000;
    h.core.on_timer(h.now_ns);
  }
  h.core.check_invariants();
}

}  // namespace
}  // namespace loam::commit
