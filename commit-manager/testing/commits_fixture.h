// A fixture for tests of commits, in which the test sets the progress of the commit log.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"

namespace loam::commit {

inline constexpr uint64_t kSecond = 1'000'000'000;

inline wire::Complete commit_of(std::initializer_list<uint64_t> ids) {
  wire::Complete message;
  for (const uint64_t id : ids) message.outcomes.push_back({TransactionId(id), true});
  return message;
}

inline wire::Complete abort_of(uint64_t id) { return wire::Complete{{{TransactionId(id), false}}}; }

/// A core with one storage node that owns all shards, and a commit log whose progress the test sets.
struct CommitsTest : ::testing::Test {
  void SetUp() override { start(); }

  void start(const CoreOptions& options = options_of_test()) {
    log.at_once = false;
    h = std::make_unique<CoreHarness>(options, nullptr, Bytes{}, &log);
    node = h->node("tcp://a:1");
    client = h->client();
    h->run_for(kLease / 64);
    h->acknowledge_all(node);
  }
  static CoreOptions options_of_test() {
    CoreOptions options = CoreHarness::open_at_once();
    options.outcome_keep_ns = 10 * kSecond;
    return options;
  }

  void begin(uint32_t count) { ASSERT_TRUE(h->call<wire::BeginReply>(client, wire::Begin{count, false}).ok()); }
  bool no_messages(PeerId peer) { return h->outbox.sent[peer].empty(); }
  /// Returns the reply to a begin now.
  wire::BeginReply now(PeerId peer) { return *h->call<wire::BeginReply>(peer, wire::Begin{1, false}).message; }
  wire::Outcome outcome(uint64_t id) { return h->core.outcome(TransactionId(id)); }
  void accept(uint64_t position) { log.accept(h->core, position); }
  void flush(uint64_t position) { log.flush(h->core, position); }
  void flush_all() { log.finish(h->core); }
  /// Takes the messages of the node and returns the newest publication. The node acknowledges nothing.
  ReplyOrError<wire::Publish> published(uint64_t after_ns = 50'000'000) {
    h->run_for(after_ns);
    return h->newest<wire::Publish>(node);
  }
  void acknowledge(const ReplyOrError<wire::Publish>& publish) {
    const Publication& seen = publish->publication;
    h->deliver(node, CoreHarness::encoded(wire::PublishReply{seen.cm_epoch, seen.number}, publish.sequence));
  }
  /// Advances the clock while all sessions and storage nodes renew their leases.
  void run_alive(uint64_t ns, std::initializer_list<PeerId> nodes) {
    for (uint64_t passed = 0; passed < ns; passed += kLease / 4) {
      h->post(client, wire::RenewSession{});
      for (const PeerId peer : nodes) h->post(peer, wire::RenewNode{});
      h->run_for(kLease / 4);
      h->outbox.sent[client].clear();
    }
  }

  RecordingLog log;
  std::unique_ptr<CoreHarness> h;
  PeerId node, client;
};

}  // namespace loam::commit
