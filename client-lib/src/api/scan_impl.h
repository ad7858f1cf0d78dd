// The inside of a scan's stream.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <loam/client/scan.h>

#include "client-lib/src/driver/engine.h"
#include "common/fiber/wait.h"
#include "common/rpc/channel.h"
#include "common/schema/merge.h"
#include "common/wire/storage.h"

namespace loam::client {

/// One query on its way through all nodes. Worker's thread only. Held by the stream, and by itself while nodes work
/// for it.
///
/// Chunks of a node wait here, at most as many as it was given credits for; the stream's reader merges them, and each
/// chunk that it takes gives a credit back: so a slow reader slows the nodes' work for its own query.
class ScanRun final : public std::enable_shared_from_this<ScanRun>, private rpc::Caller {
 public:
  ScanRun(Engine& engine, std::shared_ptr<Session> session, Table table, const Query& query, const ScanOptions& options,
          std::shared_ptr<const Snapshot> snapshot, std::shared_ptr<SnapshotLease> lease);

  Status start();
  /// In a fiber.
  Result<std::shared_ptr<const Chunk>> next();
  void cancel();

  const std::shared_ptr<const ResultSchema>& result_schema() const { return merger_.result_schema(); }
  /// What has been told so far, by those that have ended and those that have not.
  ScanStatistics statistics() const;
  const std::string& plan() const { return plan_; }

 private:
  struct Node {
    rpc::Channel* channel = nullptr;
    uint64_t sequence = 0;
    bool open = false;
    uint32_t waiting = 0;         // chunks received and not yet taken
    uint32_t owed = 0;            // credits to give back
    rpc::Channel::Offer offer{};  // a slot for each credit
    wire::ScanStatistics told{};
  };
  struct Arrived {
    std::shared_ptr<const Chunk> chunk;
    uint32_t node = 0;
  };

  Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t token, const Status& status, rpc::Executed executed) override;
  bool expects_rows() const { return !query_.aggregating() && query_.limit == 0 && !options_.explain; }
  Status connect(const std::set<NodeId>& nodes);
  Status ask(rpc::Channel& channel, wire::Scan& message, uint32_t number);
  Result<Bytes> bytes_of(const wire::ScanChunk& message, const Node& node) const;
  Status on_chunk(uint32_t number, ByteReader& body);
  Status on_progress(uint32_t number, ByteReader& body);
  void on_done(uint32_t number, const Status& status);
  void fail(const Status& status);
  void cancel_nodes();
  Status merge(const Arrived& arrived);

  Engine& engine_;
  const std::shared_ptr<Session> session_;
  const Table table_;
  const ScanOptions options_;
  const std::shared_ptr<const Snapshot> snapshot_;
  std::shared_ptr<SnapshotLease> lease_;  // until no node reads any more, or for nothing; the reader may be long gone
  const Query query_;
  ResultMerger merger_;
  std::vector<Node> nodes_;
  std::deque<Arrived> arrived_;
  std::deque<std::shared_ptr<const Chunk>> merged_;
  uint32_t open_ = 0;
  bool cancelling_ = false;  // chunks that still come are dropped
  bool ended_ = false;
  Status status_;
  std::exception_ptr thrown_;  // by the application's on_progress; next() throws it
  fiber::WaitPoint changed_;
  uint64_t started_ns_ = 0;
  uint64_t ended_ns_ = 0;
  ScanStatistics received_;  // what the client itself counts
  std::string plan_;
  std::shared_ptr<ScanRun> self_;
};

class ScanStream::Impl {
 public:
  /// In a fiber. `lease` keeps the snapshot, if it is not a transaction's.
  static Result<ScanStream> start(Engine& engine, std::shared_ptr<Session> session, const Table& table,
                                  const Query& query, const ScanOptions& options,
                                  std::shared_ptr<const Snapshot> snapshot, std::shared_ptr<SnapshotLease> lease);

  Impl(Engine& engine, std::shared_ptr<ScanRun> run) : engine_(engine), run_(std::move(run)) {}
  ~Impl();

  Engine& engine() { return engine_; }
  ScanRun& run() { return *run_; }

 private:
  Engine& engine_;
  std::shared_ptr<ScanRun> run_;
};

}  // namespace loam::client
