// A fixture for tests of a core with a slow disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"

namespace loam::commit {

/// A core with one storage node that owns all shards, one client, and a state store that the test finishes.
struct DurabilityTest : ::testing::Test {
  static CoreOptions options() {
    CoreOptions options = CoreHarness::open_at_once();
    options.initial_nodes = 1;
    return options;
  }

  static wire::CreateTable table(const std::string& name) { return {name, TableKind::kTransactional, test_schema()}; }

  /// Starts a core from the stored state, with one storage node that has the shard map.
  void start(const CoreOptions& with = options()) {
    const uint64_t now_ns = h ? h->now_ns : 1'000'000'000;
    disk.writing.reset();  // a crash loses an unfinished store
    const Buffer state = disk.state;
    ASSERT_TRUE(Core::check_state(state).ok()) << Core::check_state(state).to_string();
    h = std::make_unique<CoreHarness>(with, &disk, state);
    h->now_ns = now_ns;
    disk.finish_all(h->core);
    h->core.on_timer(h->now_ns);
  }
  void serve() {
    node = register_node("tcp://a:1");
    finish();
    acknowledge_tables();
    client = h->client();
    finish();
    ASSERT_EQ(h->core.statistics().sessions, 1u);
  }

  PeerId register_node(const std::string& address, Incarnation incarnation = Incarnation(0)) {
    const PeerId peer = h->connect();
    h->post(peer, wire::RegisterNode{address, "", 1 << 20, incarnation});
    return peer;
  }
  void acknowledge_tables() {
    while (!h->outbox.sent[node].empty()) {
      const auto install = h->receive<wire::InstallTable>(node);
      if (install.ok()) h->deliver(node, CoreHarness::encoded(wire::InstallTableReply{}, install.sequence));
    }
  }
  void finish() { disk.finish_all(h->core); }
  bool no_messages(PeerId peer) { return h->outbox.sent[peer].empty(); }

  SlowStateStore disk;
  std::unique_ptr<CoreHarness> h;
  PeerId node;
  PeerId client;
};

}  // namespace loam::commit
