#include "storage-node/src/server/scan_service.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <semaphore>
#include <utility>

#include "common/base/env.h"
#include "common/schema/merge.h"
#include "common/testing/eventually.h"
#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

/// Keeps the messages of scans, and lets the test wait for the end of a scan.
class RecordingOutbox : public Outbox {
 public:
  void post(OutgoingMessage outgoing) override {
    if (before_post) before_post();
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(outgoing.message));
    posted_.notify_all();
  }
  /// Returns the messages up to kScanDone, inclusive. Fails the test if kScanDone does not arrive in time.
  std::vector<Buffer> wait_for_done() {
    std::unique_lock lock(mutex_);
    const bool done = posted_.wait_for(lock, testing::kTestTimeout, [&] {
      return !messages_.empty() && opcode(messages_.back()) == wire::Opcode::kScanDone;
    });
    EXPECT_TRUE(done) << "no kScanDone";
    return std::move(messages_);
  }
  static wire::Opcode opcode(Bytes message) {
    ByteReader reader(message);
    wire::Envelope envelope;
    EXPECT_TRUE(wire::decode_envelope(reader, envelope).ok());
    return envelope.opcode;
  }

  std::function<void()> before_post;  ///< set before the scan threads run

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<Buffer> messages_;  // guarded by mutex_
};

/// Keeps all messages, for a test that acts as the client.
class KeepingOutbox : public Outbox {
 public:
  void post(OutgoingMessage outgoing) override {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(outgoing));
    posted_.notify_all();
  }
  /// Returns the oldest message; waits for one up to that time.
  template <class Duration>
  std::optional<OutgoingMessage> take(Duration within) {
    std::unique_lock lock(mutex_);
    if (!posted_.wait_for(lock, within, [&] { return !kept_.empty(); })) return {};
    std::optional<OutgoingMessage> oldest = std::move(kept_.front());
    kept_.pop_front();
    return oldest;
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<OutgoingMessage> kept_;  // guarded by mutex_
};

class ScanServiceTest : public NodeFixture {
 protected:
  static constexpr uint64_t kRows = 2'000;
  static constexpr uint64_t kNoTimeout = 60'000'000'000;  // longer than any test waits

  ScanServiceTest() : peer(1) { enter_service(); }

  void start_service(unsigned threads, uint32_t max_queries = 4) {
    service = std::make_unique<ScanService>(*registry, epochs, *pool, std::vector<Outbox*>{&outbox},
                                            ScanService::Options{.threads = threads, .max_queries = max_queries});
  }
  /// Inserts keys 1 … kRows with balance = key in transaction 11.
  void fill() {
    const EpochGuard guard(*epoch_thread);
    Table& table = *(*registry->view().find(kAccounts))->table;
    for (uint64_t key = 1; key <= kRows; ++key) {
      const Buffer bytes = row(static_cast<int64_t>(key));
      ASSERT_EQ(table.insert(*context, Key(key), Snapshot(Version(10)), TransactionId(11), bytes).code,
                StatusCode::kOk);
    }
  }
  static wire::Scan sum_scan() {
    wire::Scan scan;
    scan.table = kAccounts;
    scan.snapshot = Snapshot(Version(11));
    scan.map_version = 1;
    scan.credits = 8;
    scan.query.aggregates = {{AggregateOp::kSum, 0}};
    return scan;
  }
  Status start(wire::Scan scan, uint64_t sequence = 1) {
    const EpochGuard guard(*epoch_thread);
    return service->start(peer, sequence, std::move(scan));
  }
  /// Returns the sum over all chunks that arrived, merged as a client does.
  int64_t merged_sum(const std::vector<Buffer>& messages) {
    const Schema s = schema("balance");
    const Query query = sum_scan().query;
    std::shared_ptr<const Chunk> result;
    ResultMerger merger(s, query, [&](std::shared_ptr<const Chunk> chunk) {
      result = std::move(chunk);
      return ok_status();
    });
    for (const Buffer& message : messages) {
      ByteReader reader(message);
      wire::Envelope envelope;
      EXPECT_TRUE(wire::decode_envelope(reader, envelope).ok());
      if (envelope.opcode != wire::Opcode::kScanChunk) continue;
      wire::ScanChunk chunk;
      EXPECT_TRUE(wire::decode_body(reader, chunk).ok());
      EXPECT_TRUE(merger.add(Chunk::decode(chunk.chunk, merger.partial_schema()).value()).ok());
    }
    EXPECT_TRUE(merger.finish().ok());
    return result->view().get<int64_t>(0, 0);
  }

  /// Returns the status with which the scan ended, without a chunk.
  StatusCode end_of_scan() {
    const auto messages = outbox.wait_for_done();
    EXPECT_EQ(messages.size(), 1u);
    ByteReader reader(messages.back());
    wire::Envelope envelope;
    wire::ScanDone done;
    EXPECT_TRUE(wire::decode_envelope(reader, envelope).ok());
    EXPECT_TRUE(wire::decode_body(reader, done).ok());
    return done.status.code();
  }

  /// Makes a scan with more than one chunk of rows, for a client that reads one.
  static wire::Scan wide_scan() {
    wire::Scan scan = sum_scan();
    scan.query.aggregates.clear();
    scan.query.select.assign(700, 0);
    scan.credits = 1;
    return scan;
  }
  void start_kept(const ScanService::Options& options) {
    service = std::make_unique<ScanService>(*registry, epochs, *pool, std::vector<Outbox*>{&kept}, options);
    service->run();
  }
  /// Waits for the ends of `count` scans and returns their statuses by sequence. The client reads the chunks of scan
  /// `reads` alone.
  std::map<uint64_t, Status> ends_of_scans(size_t count, uint64_t reads) {
    std::map<uint64_t, Status> ends;
    while (ends.size() < count) {
      const auto outgoing = kept.take(testing::kTestTimeout);
      if (!outgoing.has_value()) {
        ADD_FAILURE() << "no kScanDone";
        break;
      }
      ByteReader reader(outgoing->message);
      wire::Envelope envelope;
      EXPECT_TRUE(wire::decode_envelope(reader, envelope).ok());
      if (envelope.opcode == wire::Opcode::kScanChunk && envelope.sequence == reads) service->credit(peer, reads, 1);
      if (envelope.opcode != wire::Opcode::kScanDone) continue;
      wire::ScanDone done;
      EXPECT_TRUE(wire::decode_body(reader, done).ok());
      ends[envelope.sequence] = done.status;
    }
    return ends;
  }

  RecordingPeer peer;
  RecordingOutbox outbox;
  KeepingOutbox kept;
  std::unique_ptr<ScanService> service;
};

TEST_F(ScanServiceTest, RefusesWhatItCannotServe) {
  start_service(1);
  wire::Scan scan = sum_scan();
  scan.map_version = 2;
  EXPECT_TRUE(start(scan) == StatusCode::kWrongShard) << "R26: another version of the shard map";
  scan = sum_scan();
  scan.table = TableId(99);
  EXPECT_TRUE(start(scan) == StatusCode::kNoSuchTable);
  scan = sum_scan();
  scan.credits = 0;
  EXPECT_TRUE(start(scan) == StatusCode::kInvalidArgument);
  scan.credits = kMaxScanCredits + 1;
  EXPECT_TRUE(start(scan) == StatusCode::kInvalidArgument);
  scan = sum_scan();
  scan.query.aggregates = {{AggregateOp::kSum, 7}};
  EXPECT_TRUE(start(scan) == StatusCode::kInvalidArgument) << "no such field";
  scan = sum_scan();
  scan.snapshot = Snapshot(Version(9));
  EXPECT_TRUE(start(scan) == StatusCode::kSnapshotTooOld) << "R14";

  wire::ShardMap shards = catalog().shards;
  shards.owners[5] = NodeId(2);
  ASSERT_TRUE(registry->install(*epoch_thread, catalog().tables[0], shards).ok());
  scan = sum_scan();
  scan.shards = {4, 5};
  EXPECT_TRUE(start(scan) == StatusCode::kWrongShard) << "R26: a shard of another node";
  scan.shards = {wire::kVirtualShards};
  EXPECT_TRUE(start(scan) == StatusCode::kWrongShard);
}

// Operators see a query while it runs, and end it by its id.
TEST_F(ScanServiceTest, ListsAndCancelsQueries) {
  fill();
  start_kept({.threads = 2, .max_queries = 4});
  EXPECT_TRUE(service->queries(kNoTimeout).empty());
  wire::Scan scan = wide_scan();
  scan.credits = 2;
  ASSERT_TRUE(start(scan, 1).ok());
  wire::Scan other = scan;
  other.query.select.pop_back();
  ASSERT_TRUE(start(other, 2).ok());
  ASSERT_TRUE(start(scan, 3).ok());
  std::vector<QueryStatus> listed;
  const auto all_wait = [&] {
    listed = service->queries(kNoTimeout);
    return std::ranges::all_of(
        listed, [](const QueryStatus& one) { return one.state == QueryStatus::State::kWaitingForClient; });
  };
  ASSERT_TRUE(testing::eventually(all_wait)) << "the client reads no chunk";
  ASSERT_EQ(listed.size(), 3u);
  for (const QueryStatus& one : listed) {
    EXPECT_EQ(one.table, "accounts");
    EXPECT_EQ(one.snapshot, Version(11));
    EXPECT_GT(one.pages_total, 0u);
    EXPECT_LE(one.pages_left, one.pages_total);
    EXPECT_GE(one.chunks, 1u);
    EXPECT_EQ(one.unread_chunks, one.chunks);
    EXPECT_LE(one.waiting_ns, one.age_ns);
  }
  const auto count = [&](const QueryId& id) { return std::ranges::count(listed, id, &QueryStatus::id); };
  const auto pair = std::ranges::find_if(listed, [&](const QueryStatus& one) { return count(one.id) == 2; });
  const auto single = std::ranges::find_if(listed, [&](const QueryStatus& one) { return count(one.id) == 1; });
  ASSERT_TRUE(pair != listed.end() && single != listed.end()) << "the id depends on the content of the query";

  EXPECT_EQ(service->durations().count(), 0u) << "no scan has ended";
  const Status why(StatusCode::kCancelled, "cancelled by an operator");
  EXPECT_EQ(service->cancel({SessionId(9), pair->id.hash}, why), 0u) << "another session";
  EXPECT_EQ(service->cancel({pair->id.session, pair->id.hash + 1}, why), 0u) << "another query";
  EXPECT_EQ(service->cancel(single->id, why), 1u);
  EXPECT_EQ(ends_of_scans(1, 0).at(2).to_string(), why.to_string());
  EXPECT_EQ(service->cancel(single->id, why), 0u) << "it has ended";
  EXPECT_EQ(service->cancel(pair->id, why), 2u);
  const auto ended = ends_of_scans(2, 0);
  EXPECT_TRUE(ended.at(1) == StatusCode::kCancelled && ended.at(3) == StatusCode::kCancelled);
  EXPECT_TRUE(service->queries(kNoTimeout).empty());
  EXPECT_EQ(service->durations().count(), 3u) << "of scans, not of their parts";
  EXPECT_GT(service->durations().sum_ns(), 0u);
}

// A query that is cancelled before its scan threads know it reads nothing.
TEST_F(ScanServiceTest, CancelsQueriesThatHaveNotBegun) {
  fill();
  start_service(2);
  ASSERT_TRUE(start(sum_scan()).ok());
  const std::vector<QueryStatus> listed = service->queries(0);
  ASSERT_EQ(listed.size(), 1u) << "the scan threads do not run yet, and do not report";
  EXPECT_EQ(listed[0].state, QueryStatus::State::kQueued);
  EXPECT_EQ(service->cancel(listed[0].id, {StatusCode::kCancelled, "cancelled by an operator"}), 1u);
  service->run();
  EXPECT_EQ(end_of_scan(), StatusCode::kCancelled);
}

// The memory of a chunk is held until the network has taken it. After that, and after the end of the scan, all memory
// is released.
TEST_F(ScanServiceTest, QueryMemoryIsHeldUntilTheNetworkHasTheChunks) {
  fill();
  QueryMemory memory(uint64_t{64} << 20);
  start_kept({.threads = 1, .max_queries = 4, .memory = &memory});
  wire::Scan scan = wide_scan();
  scan.credits = 8;
  EXPECT_TRUE(start(scan, 1).ok());
  std::vector<OutgoingMessage> on_their_way;
  size_t bytes = 0;
  for (bool done = false; !done;) {
    auto outgoing = kept.take(testing::kTestTimeout);
    ASSERT_TRUE(outgoing.has_value()) << "no kScanDone";
    const wire::Opcode opcode = RecordingOutbox::opcode(outgoing->message);
    done = opcode == wire::Opcode::kScanDone;
    if (opcode == wire::Opcode::kScanChunk) service->credit(peer, 1, 1);
    bytes += done ? 0 : outgoing->message.size();
    on_their_way.push_back(std::move(*outgoing));
  }
  EXPECT_GT(on_their_way.size(), 3u);
  EXPECT_TRUE(testing::eventually([&] { return memory.used_bytes() < bytes + kScanChunkBytes; }));
  EXPECT_GT(memory.used_bytes(), bytes - bytes / 8) << "chunks that wait for the network";
  on_their_way.clear();
  EXPECT_TRUE(testing::eventually([&] { return memory.used_bytes() == 0; })) << memory.used_bytes();
}

TEST_F(ScanServiceTest, ScanBeyondQueryMemoryNamesTheLimit) {
  fill();
  QueryMemory memory(uint64_t{64} << 10);
  start_kept({.threads = 2, .max_queries = 4, .memory = &memory});
  EXPECT_TRUE(start(wide_scan(), 1).ok());
  const auto wide = ends_of_scans(1, 1);
  ASSERT_EQ(wide.count(1), 1u);
  EXPECT_TRUE(wide.at(1) == StatusCode::kOverloaded) << wide.at(1).to_string();
  EXPECT_NE(wide.at(1).message().find("--query-memory-share"), std::string_view::npos) << wide.at(1).to_string();
  // The query has released its memory; before that another query might have met the limit, too.
  EXPECT_TRUE(testing::eventually([&] { return memory.used_bytes() == 0; })) << memory.used_bytes();
  EXPECT_TRUE(start(sum_scan(), 2).ok());
  const auto sum = ends_of_scans(1, 1);
  ASSERT_EQ(sum.count(2), 1u);
  EXPECT_TRUE(sum.at(2).ok()) << sum.at(2).to_string();
  EXPECT_TRUE(testing::eventually([&] { return memory.used_bytes() == 0; })) << memory.used_bytes();
}

TEST_F(ScanServiceTest, LimitsQueriesAndDistinguishesSequences) {
  start_service(1, 2);  // not running: queries stay under way
  EXPECT_TRUE(start(sum_scan(), 1).ok());
  EXPECT_TRUE(start(sum_scan(), 1) == StatusCode::kInvalidArgument) << "the sequence is in use";
  EXPECT_TRUE(start(sum_scan(), 2).ok());
  EXPECT_TRUE(start(sum_scan(), 3) == StatusCode::kOverloaded);
}

TEST_F(ScanServiceTest, PartsOfSeveralThreadsMakeOneReply) {
  fill();
  for (const unsigned threads : {1u, 3u}) {
    start_service(threads);
    service->run();
    ASSERT_TRUE(start(sum_scan()).ok());
    const auto messages = outbox.wait_for_done();
    EXPECT_EQ(merged_sum(messages), static_cast<int64_t>(kRows * (kRows + 1) / 2)) << threads << " threads";
    service->stop();
  }
}

// The client reads slots in the order of the chunks, and returns a credit only when the node does not continue without
// it.
TEST_F(ScanServiceTest, ChunksGoIntoSlotsThatAreFree) {
  constexpr std::chrono::milliseconds kPause{50};
  fill();
  for (const auto& [threads, columns] : {std::pair{1u, 300u}, {3u, 100u}}) {
    start_kept({.threads = threads, .max_queries = 4});
    wire::Scan scan = sum_scan();
    scan.query.aggregates.clear();
    scan.query.select.assign(columns, 0);  // some chunks
    scan.credits = 3;
    scan.region = 7;
    const size_t slot_bytes = wire::scan_slot_bytes(scan.query.partial_schema(schema("balance")));
    scan.region_bytes = scan.credits * slot_bytes;
    ASSERT_TRUE(start(scan).ok());
    std::deque<uint32_t> held;  // slots that the client has not read yet
    uint64_t rows = 0;
    size_t chunks = 0;
    for (;;) {
      const std::chrono::milliseconds patience = held.empty() ? testing::kTestTimeout : kPause;
      const auto outgoing = kept.take(patience);
      if (!outgoing.has_value()) {
        ASSERT_FALSE(held.empty()) << "nothing came";
        held.pop_front();
        service->credit(peer, 1, 1);
        continue;
      }
      ByteReader reader(outgoing->message);
      wire::Envelope envelope;
      ASSERT_TRUE(wire::decode_envelope(reader, envelope).ok());
      if (envelope.opcode == wire::Opcode::kScanDone) break;
      wire::ScanChunk chunk;
      ASSERT_TRUE(wire::decode_body(reader, chunk).ok());
      ASSERT_TRUE(chunk.chunk.empty()) << "what fits goes into a slot";
      ASSERT_EQ(chunk.bytes_in_slot, outgoing->region_data.size());
      ASSERT_LT(chunk.slot, scan.credits);
      ASSERT_EQ(outgoing->region.id, 7u);
      ASSERT_EQ(outgoing->offset, chunk.slot * slot_bytes);
      ASSERT_EQ(std::ranges::count(held, chunk.slot), 0) << "the client still reads there";
      uint32_t first_of_chunk = 0;
      std::memcpy(&first_of_chunk, outgoing->region_data.data(), sizeof(first_of_chunk));
      rows += first_of_chunk;  // a chunk begins with the number of its rows
      held.push_back(chunk.slot);
      ++chunks;
    }
    EXPECT_EQ(rows, kRows) << threads << " threads";
    EXPECT_GE(chunks, 6u);
    service->stop();
  }
}

TEST_F(ScanServiceTest, ChunksThatFitNoSlotTravelInMessages) {
  fill();
  start_service(1);
  service->run();
  wire::Scan scan = sum_scan();
  scan.region = 7;
  scan.region_bytes = scan.credits * 8;  // 8 bytes a slot
  ASSERT_TRUE(start(scan).ok());
  EXPECT_EQ(merged_sum(outbox.wait_for_done()), static_cast<int64_t>(kRows * (kRows + 1) / 2));
}

TEST_F(ScanServiceTest, ServesExactlyTheShardsNamed) {
  fill();
  start_service(1);
  service->run();
  wire::Scan scan = sum_scan();
  scan.shards.resize(wire::kVirtualShards / 2);
  std::iota(scan.shards.begin(), scan.shards.end(), uint16_t{0});
  int64_t expected = 0;
  for (uint64_t key = 1; key <= kRows; ++key) {
    if (wire::shard_of(kAccounts, Key(key)) < wire::kVirtualShards / 2) expected += static_cast<int64_t>(key);
  }
  ASSERT_TRUE(start(scan).ok());
  EXPECT_EQ(merged_sum(outbox.wait_for_done()), expected);
}

TEST_F(ScanServiceTest, ADroppedTableEndsItsScans) {
  fill();
  start_service(1);
  wire::Scan scan = sum_scan();
  ASSERT_TRUE(start(scan).ok());
  registry->remove(*epoch_thread, kAccounts);
  service->run();
  EXPECT_EQ(end_of_scan(), StatusCode::kNoSuchTable) << "never an empty result (R30)";
  service->stop();
}

TEST_F(ScanServiceTest, DisconnectedPeerEndsItsScans) {
  start_service(1, 1);
  ASSERT_TRUE(start(sum_scan()).ok());
  service->peer_disconnected(peer.id());
  service->run();
  outbox.wait_for_done();
  EXPECT_TRUE(start(sum_scan(), 2).ok()) << "its place is free again";
  service->stop();
}

TEST_F(ScanServiceTest, WithoutALeaseScansEnd) {
  fill();
  start_service(2);
  ASSERT_TRUE(start(sum_scan()).ok());
  registry->grant_lease(1);  // a lease that has run out
  service->run();
  EXPECT_EQ(end_of_scan(), StatusCode::kUnavailable);
  service->stop();
}

TEST_F(ScanServiceTest, ANewPublicationEndsScansThatItDoesNotCover) {
  fill();
  start_service(1);
  ASSERT_TRUE(start(sum_scan()).ok());
  registry->publish(*epoch_thread, publication(2, 50));
  service->run();
  EXPECT_EQ(end_of_scan(), StatusCode::kSnapshotTooOld) << "R14";
  service->stop();
}

TEST_F(ScanServiceTest, EndAllInformsTheClients) {
  fill();
  start_service(2);
  ASSERT_TRUE(start(sum_scan()).ok());
  EXPECT_FALSE(service->end_all({StatusCode::kUnavailable, "stopping"}, 0)) << "the threads do not run yet";
  service->run();
  EXPECT_EQ(end_of_scan(), StatusCode::kUnavailable);
  EXPECT_TRUE(service->end_all({StatusCode::kUnavailable, "stopping"}, 30'000'000'000));
  service->stop();
}

TEST_F(ScanServiceTest, EndAllWaitsUntilTheEndsAreInTheOutboxes) {
  fill();
  start_service(1);
  std::binary_semaphore posting(0), may_post(0);
  outbox.before_post = [&] {
    posting.release();
    may_post.acquire();
  };
  ASSERT_TRUE(start(sum_scan()).ok());
  EXPECT_FALSE(service->end_all({StatusCode::kUnavailable, "stopping"}, 0)) << "the thread does not run yet";
  service->run();
  posting.acquire();
  EXPECT_FALSE(service->end_all({StatusCode::kUnavailable, "stopping"}, 0)) << "the thread has not posted the end";
  may_post.release();
  EXPECT_TRUE(service->end_all({StatusCode::kUnavailable, "stopping"}, 30'000'000'000));
  EXPECT_EQ(end_of_scan(), StatusCode::kUnavailable);
  service->stop();
}

TEST_F(ScanServiceTest, ExplainsInsteadOfReading) {
  fill();
  start_service(2);
  wire::Scan scan = sum_scan();
  scan.explain = true;
  scan.query.where.where(0, PredicateOp::kLess, {Value::int64(7)});
  ASSERT_TRUE(start(scan).ok());
  const auto messages = outbox.wait_for_done();  // no scan thread runs
  ASSERT_EQ(messages.size(), 1u);
  ByteReader reader(messages.back());
  wire::Envelope envelope;
  wire::ScanDone done;
  ASSERT_TRUE(wire::decode_envelope(reader, envelope).ok());
  ASSERT_TRUE(wire::decode_body(reader, done).ok());
  EXPECT_TRUE(done.status.ok());
  EXPECT_EQ(done.statistics.pages, 0u);
  const std::string plan(done.plan);
  EXPECT_NE(plan.find("interval index over balance"), std::string::npos) << plan;
  EXPECT_NE(plan.find("by column"), std::string::npos) << plan;
  scan.query.aggregates = {{AggregateOp::kSum, 7}};
  EXPECT_TRUE(start(scan) == StatusCode::kInvalidArgument) << "no such field";
}

TEST_F(ScanServiceTest, ATimeLimitEndsAScanWhoseClientDoesNotRead) {
  fill();
  start_service(1);
  service->run();
  wire::Scan scan = sum_scan();
  scan.query.aggregates.clear();
  scan.query.with_key = true;
  scan.query.select.assign(700, 0);  // more than one chunk
  scan.credits = 1;
  scan.time_limit_ns = 50'000'000;
  ASSERT_TRUE(start(scan).ok());
  const auto messages = outbox.wait_for_done();
  ByteReader reader(messages.back());
  wire::Envelope envelope;
  wire::ScanDone done;
  ASSERT_TRUE(wire::decode_envelope(reader, envelope).ok());
  ASSERT_TRUE(wire::decode_body(reader, done).ok());
  EXPECT_EQ(done.status.code(), StatusCode::kTimeout);
  EXPECT_GE(done.statistics.elapsed_ns, scan.time_limit_ns);
}

TEST_F(ScanServiceTest, StalledReaderIsCancelledAndOthersContinue) {
  fill();
  start_kept({.max_queries = 3, .stall_limit_ns = 3'000'000'000});
  const uint64_t begun_ns = Env::now_ns();
  ASSERT_TRUE(start(wide_scan(), 1).ok());
  ASSERT_TRUE(start(wide_scan(), 2).ok());
  ASSERT_TRUE(start(sum_scan(), 3).ok());
  const auto ends = ends_of_scans(3, 2);
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_LT(Env::now_ns() - begun_ns, ScanService::Options().stall_limit_ns) << "what this service was given counts";
  EXPECT_EQ(ends.at(1).code(), StatusCode::kTimeout);
  EXPECT_NE(ends.at(1).message().find("--scan-stall-limit"), std::string_view::npos) << ends.at(1).to_string();
  EXPECT_NE(ends.at(1).message().find("read chunks as they come"), std::string_view::npos) << "what to do";
  EXPECT_TRUE(ends.at(2).ok()) << "it reads: " << ends.at(2).to_string();
  EXPECT_TRUE(ends.at(3).ok()) << ends.at(3).to_string();
  EXPECT_TRUE(start(wide_scan(), 4).ok()) << "its place is free again";
  service->stop();
}

TEST_F(ScanServiceTest, StalledReaderLosesItsPagesWhenMemoryIsShort) {
  fill();
  while (pool->fill() <= 0.9) ASSERT_NE(pool->allocate(pool->page_size(), Reserve::kCompactor), nullptr);
  start_kept({.stall_limit_ns = 10'000'000'000});
  ASSERT_TRUE(start(wide_scan(), 1).ok());
  ASSERT_TRUE(start(wide_scan(), 2).ok());
  const auto ends = ends_of_scans(2, 2);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends.at(1).code(), StatusCode::kTimeout);
  EXPECT_NE(ends.at(1).message().find("short of memory"), std::string_view::npos) << ends.at(1).to_string();
  EXPECT_TRUE(ends.at(2).ok()) << "it reads: " << ends.at(2).to_string();
  service->stop();
  const EpochGuard guard(*epoch_thread);
  const auto pages = (*registry->view().find(kAccounts))->table->pages().pages();
  EXPECT_TRUE(std::ranges::none_of(pages, [](const Page* page) { return page->pinned(); }));
}

TEST_F(ScanServiceTest, ProgressIntervalIsClamped) {
  fill();
  start_service(1);
  service->run();
  wire::Scan scan = sum_scan();
  scan.query.aggregates.clear();
  scan.query.select.assign(700, 0);  // more than one chunk, for a client that reads one
  scan.credits = 1;
  scan.time_limit_ns = 1'000'000'000;
  for (const uint64_t interval_ns : {uint64_t{1}, std::numeric_limits<uint64_t>::max()}) {
    scan.progress_interval_ns = interval_ns;
    ASSERT_TRUE(start(scan).ok());
    const auto messages = outbox.wait_for_done();
    const auto progress_reports = std::ranges::count_if(messages, [](const Buffer& message) {
      return RecordingOutbox::opcode(message) == wire::Opcode::kScanProgress;
    });
    if (interval_ns == 1) {
      EXPECT_GE(progress_reports, 1);
      EXPECT_LE(progress_reports, 50) << "once in 20 ms at most";
    } else {
      EXPECT_EQ(progress_reports, 0);
    }
  }
}

}  // namespace
}  // namespace loam::storage
