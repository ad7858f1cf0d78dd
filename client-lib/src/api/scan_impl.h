// Implementation of ScanStream: a query on all storage nodes.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <loam/client/record.h>
#include <loam/client/scan.h>

#include "client-lib/src/driver/engine.h"
#include "common/fiber/wait.h"
#include "common/result/merge.h"
#include "common/rpc/channel.h"
#include "common/wire/storage.h"

namespace loam::client {

/// The writes of a transaction to one table.
struct OwnWrites {
  std::vector<Key> keys;        ///< of all written records, ascending
  std::vector<Record> records;  ///< those that exist after the writes, as whole rows
};

/// Executes one query on all storage nodes.
///
/// The chunks of a storage node wait here, at most as many as the node has credits. The reader of the stream merges
/// them, and each chunk that it takes returns a credit. So a slow reader slows the storage nodes' work for its own
/// query only.
///
/// Owner: the stream; the object also keeps itself alive while storage nodes work for it. Threads: the worker thread
/// only.
class DistributedScan final : public std::enable_shared_from_this<DistributedScan>, private rpc::ResponseHandler {
 public:
  DistributedScan(Engine& engine, std::shared_ptr<Session> session, Table table, const Query& query,
                  const ScanOptions& options, std::shared_ptr<const Snapshot> snapshot,
                  std::shared_ptr<RegisteredSnapshot> registered);

  /// Puts the rows that the transaction has written in the place of those that the storage nodes have. Before start().
  /// The errors are those of expressions.
  Status add_own_writes(OwnWrites own);
  /// Sends the query to all storage nodes. In a fiber.
  Status start();
  /// Implements ScanStream::next(). In a fiber.
  Result<std::shared_ptr<const Chunk>> next();
  void cancel();

  const std::shared_ptr<const ResultSchema>& result_schema() const { return merger_.result_schema(); }
  /// The sum of the storage nodes' final statistics and progress reports.
  ScanStatistics statistics() const;
  const std::string& plan() const { return plan_; }

 private:
  struct Node {
    rpc::Channel* channel = nullptr;
    uint64_t sequence = 0;
    bool open = false;
    uint32_t waiting = 0;            // chunks received and not yet taken
    uint32_t credits_to_return = 0;  // credits that were not returned yet
    rpc::Channel::Offer offer{};     // a slot for each credit
    wire::ScanStatistics statistics{};
  };
  struct ReceivedChunk {
    std::shared_ptr<const Chunk> chunk;
    uint32_t node = 0;
  };

  Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t token, const Status& status, rpc::ExecutionStatus executed) override;
  bool expects_rows() const { return !query_.aggregating() && query_.limit == 0 && !options_.explain; }
  Status connect(const std::set<NodeId>& nodes);
  Status send_scan(rpc::Channel& channel, wire::Scan& message, uint32_t number);
  Result<Bytes> bytes_of(const wire::ScanChunk& message, const Node& node) const;
  Status on_chunk(uint32_t number, ByteReader& body);
  Status on_progress(uint32_t number, ByteReader& body);
  void on_done(uint32_t number, const Status& status);
  void fail(const Status& status);
  void cancel_nodes();
  Status merge(const ReceivedChunk& arrived);

  Engine& engine_;
  const std::shared_ptr<Session> session_;
  const Table table_;
  const ScanOptions options_;
  const std::shared_ptr<const Snapshot> snapshot_;
  std::shared_ptr<RegisteredSnapshot> registered_snapshot_;  // until no storage node reads any more; null: none
  const Query query_;
  ResultMerger merger_;
  std::vector<Key> without_;  // records that the storage nodes leave out
  std::vector<Node> nodes_;
  std::deque<ReceivedChunk> received_chunks_;
  std::deque<std::shared_ptr<const Chunk>> merged_;
  uint32_t open_nodes_ = 0;
  bool cancelling_ = false;  // chunks that arrive are dropped
  bool ended_ = false;
  Status status_;
  std::exception_ptr thrown_;  // by the application's on_progress; next() throws it
  fiber::WaitPoint changed_;
  uint64_t started_ns_ = 0;
  uint64_t ended_ns_ = 0;
  ScanStatistics received_;  // the client's own counts
  std::string plan_;
  std::shared_ptr<DistributedScan> self_;
};

class ScanStream::Impl {
 public:
  /// Starts a query. `registered` holds the snapshot open, if it is a registered one. In a fiber.
  static Result<ScanStream> start(Engine& engine, std::shared_ptr<Session> session, const Table& table,
                                  const Query& query, const ScanOptions& options,
                                  std::shared_ptr<const Snapshot> snapshot,
                                  std::shared_ptr<RegisteredSnapshot> registered, OwnWrites own = {});

  Impl(Engine& engine, std::shared_ptr<DistributedScan> run) : engine_(engine), run_(std::move(run)) {}
  ~Impl();

  Engine& engine() { return engine_; }
  DistributedScan& run() { return *run_; }

 private:
  Engine& engine_;
  std::shared_ptr<DistributedScan> run_;
};

}  // namespace loam::client
