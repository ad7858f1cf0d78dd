// For tests: the request handling of a storage node, without threads and sockets.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "common/schema/row.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/request/executor.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/request/session_table.h"

namespace loam::storage {

/// A connection that records the messages sent to it. Owner: the test. Threads: one.
class RecordingPeer : public Peer {
 public:
  using Peer::Peer;

  Status send(Bytes message) override {
    if (refuse_sends) return {StatusCode::kOverloaded, "the peer does not read"};
    sent.emplace_back(message.begin(), message.end());
    return ok_status();
  }
  void close(Status status) override { closed = std::move(status); }

  /// The reply with this sequence number. Fails the test if there is none, or if it is not an M.
  template <wire::Message M>
  M answer(uint64_t sequence) const {
    for (const Buffer& message : sent) {
      ByteReader reader(message);
      wire::Envelope envelope;
      EXPECT_TRUE(wire::decode_envelope(reader, envelope).ok());
      if (envelope.sequence != sequence) continue;
      M decoded;
      EXPECT_EQ(wire::to_string(envelope.opcode), wire::to_string(M::kOpcode));
      if (envelope.opcode == M::kOpcode) {
        EXPECT_TRUE(wire::decode_body(reader, decoded).ok());
      }
      return decoded;
    }
    ADD_FAILURE() << "no reply with sequence " << sequence;
    return {};
  }

  std::vector<Buffer> sent;   ///< the messages, in order
  Status closed;              ///< the reason of close()
  bool refuse_sends = false;  ///< send() returns kOverloaded
};

/// A scan handler that records the requests and executes none. Owner: the test. Threads: one.
class RecordingScans : public ScanHandler {
 public:
  Status start(Peer&, uint64_t sequence, wire::Scan scan) override {
    if (!answer.ok()) return answer;
    started.emplace(sequence, std::move(scan));
    return ok_status();
  }
  void credit(Peer&, uint64_t sequence, uint32_t credits) override { credited[sequence] += credits; }
  void cancel(Peer&, uint64_t sequence) override { cancelled.push_back(sequence); }

  Status answer;                           ///< the result of start()
  std::map<uint64_t, wire::Scan> started;  ///< by sequence number
  std::map<uint64_t, uint64_t> credited;   ///< sum of credits, by sequence number
  std::vector<uint64_t> cancelled;         ///< sequence numbers
};

/// A storage node with number 1 and two tables. Table 1 is transactional: "accounts" with an int64 `balance`. Table 2
/// is non-transactional: "loam.counters" with an int64 `next`. The node does not serve before enter_service().
class NodeFixture : public ::testing::Test {
 protected:
  static constexpr TableId kAccounts{1};
  static constexpr TableId kCounters{2};
  static constexpr TableId kIndex{9};
  static constexpr Incarnation kIncarnation{7};
  static constexpr wire::ClusterId kCluster{1, 2};

  NodeFixture() {
    PagePoolOptions options;
    options.limit_bytes = size_t{8} << 20;
    options.page_size_bytes = size_t{64} << 10;
    options.huge_pages = false;
    options.prefault = false;
    pool = PagePool::create(options).value();
    compactor = std::make_unique<Compactor>(CompactorOptions{}, *pool, epochs);
    registry = std::make_unique<Registry>(epochs, *pool, *compactor, Registry::Options{.writers = 4, .log = {}});
    epoch_thread = std::make_unique<EpochThread>(epochs, "test");
    context = std::make_unique<ThreadContext>(*epoch_thread, 0);
    executor = std::make_unique<Executor>(*registry, sessions, scans, *context);
  }

  static Schema schema(const char* field) { return Schema::make({{field, FieldType::kInt64, false}}).value(); }

  /// The catalog with both tables; node 1 owns all shards.
  static wire::Catalog catalog() {
    wire::Catalog catalog;
    catalog.version = 1;
    catalog.tables = {{kAccounts, "accounts", TableKind::kTransactional, schema("balance")},
                      {kCounters, "loam.counters", TableKind::kNonTransactional, schema("next")}};
    catalog.shards.version = 1;
    catalog.shards.owners.assign(wire::kVirtualShards, NodeId(1));
    return catalog;
  }

  /// A publication under which every later snapshot sees all versions up to `base`, and no older snapshot is open.
  static Publication publication(uint64_t number, uint64_t base) {
    Publication publication;
    publication.cm_epoch = 1;
    publication.number = number;
    publication.later = Snapshot(Version(base));
    publication.floor = Version(base);
    return publication;
  }

  /// Registers the node and grants a lease without end.
  void enter_service() {
    ASSERT_TRUE(registry->enter_service(*epoch_thread, registered()).ok());
    registry->grant_lease(UINT64_MAX);
  }
  /// Installs the table of an index on the balances. A tree node is a record with one int64.
  void install_index() {
    const wire::TableInfo index{
        kIndex, "by_balance", TableKind::kNonTransactional, schema("value"), {kAccounts, {{0, false}}}};
    ASSERT_TRUE(registry->install(*epoch_thread, index, catalog().shards).ok());
  }
  /// The reply of the commit manager to the registration.
  static wire::RegisterNodeReply registered() {
    wire::RegisterNodeReply answer{NodeId(1), kIncarnation, 1, catalog(), publication(1, 10)};
    answer.history = {kCluster, {{1, 101, 1}}, 1};
    return answer;
  }

  /// A row with one value.
  static Buffer row(int64_t value) {
    const Schema s = schema("balance");
    RowBuilder builder(s);
    EXPECT_TRUE(builder.set_int64(0, value).ok());
    const Bytes bytes = builder.finish().value();
    return {bytes.begin(), bytes.end()};
  }
  /// The value of such a row.
  static int64_t value(Bytes bytes) {
    const Schema s = schema("balance");
    return RowView(s, bytes).int64(0);
  }

  /// Executes messages as one batch. Each pair is {sequence number, message}.
  template <wire::Message... M>
  void run(RecordingPeer& peer, const std::pair<uint64_t, M>&... messages) {
    std::vector<Buffer> buffers;
    (
        [&] {
          buffers.emplace_back();
          wire::encode_message(messages.second, messages.first, buffers.back());
        }(),
        ...);
    run_raw(peer, buffers);
  }
  /// Executes encoded messages as one batch.
  void run_raw(RecordingPeer& peer, const std::vector<Buffer>& buffers) {
    const std::vector<Bytes> views(buffers.begin(), buffers.end());
    executor->run(peer, views);
  }
  /// Attaches the connection to a session.
  void attach(RecordingPeer& peer, uint64_t session) {
    run(peer, std::pair(uint64_t{1'000'000} + session, wire::Attach{SessionId(session), 1, kIncarnation}));
    peer.answer<wire::AttachReply>(1'000'000 + session);
    peer.sent.clear();
  }

  /// The intents of a session, or of all sessions for 0. Reads them as recovery does: page by page, in a session of its
  /// own.
  std::vector<wire::Intent> intents(uint64_t session = 0) {
    RecordingPeer asker(1'000'000);
    attach(asker, 1'000'000);
    std::vector<wire::Intent> all;
    wire::IntentPosition after;
    for (bool more = true; more;) {
      asker.sent.clear();
      run(asker, std::pair(uint64_t{1}, wire::Intents{SessionId(session), after}));
      const auto page = asker.answer<wire::IntentsReply>(1);
      // The keys point into the message, which ends with this round: keep copies.
      for (wire::Intent intent : page.intents) {
        intent.key = intent_keys_.emplace_back(intent.key);
        all.push_back(intent);
      }
      more = page.more;
      EXPECT_TRUE(!more || page.end > after) << "each page begins behind the previous one";
      after = page.end;
    }
    sessions.detach(asker.session(), asker.id());
    return all;
  }

  std::unique_ptr<PagePool> pool;
  EpochDomain epochs;
  std::unique_ptr<Compactor> compactor;
  std::unique_ptr<Registry> registry;
  std::unique_ptr<EpochThread> epoch_thread;
  std::unique_ptr<ThreadContext> context;
  std::vector<std::pair<PeerId, StatusCode>> closed;  // connections that the session table has closed
  IntentPool intent_pool{size_t{1} << 20};
  SessionTable sessions{intent_pool,
                        [this](PeerId peer, const Status& status) { closed.emplace_back(peer, status.code()); }};
  RecordingScans scans;
  std::unique_ptr<Executor> executor;

 private:
  std::deque<std::string> intent_keys_;
};

}  // namespace loam::storage
