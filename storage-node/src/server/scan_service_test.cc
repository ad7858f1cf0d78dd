#include "storage-node/src/server/scan_service.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/eventually.h"
#include "storage-node/testing/scan_service_fixture.h"

namespace loam::storage {
namespace {

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
