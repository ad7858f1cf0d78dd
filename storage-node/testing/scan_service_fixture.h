// For tests of the scan service: outboxes that keep the messages to clients, and a table with rows.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "common/result/merge.h"
#include "common/testing/eventually.h"
#include "storage-node/src/server/scan_service.h"
#include "storage-node/testing/node_fixture.h"

namespace loam::storage {

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

/// A scan service over the table kAccounts, and its client.
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

}  // namespace loam::storage
