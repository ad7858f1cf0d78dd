// A scan by the recoverer over all tree nodes of an index.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/fiber/wait.h"
#include "common/rpc/channel.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"
#include "common/wire/catalog.h"

namespace loam::commit {

class RecoveryEngine;

/// A scan of a non-transactional table at every storage node that owns a shard. The scan fails unless every node sends
/// its whole result. It returns at least the records that do not change while it runs (R21, exact-version writes). The
/// caller uses the result only after all nodes are done.
///
/// Owner: a fiber, which waits for it. The destructor cancels open streams. The worker's thread only.
class RecoveryScan final : private rpc::ResponseHandler {
 public:
  struct Request {
    TableId table;
    Schema schema;
    Query query;
    std::string name;  ///< name of the table, for messages
    std::function<void(const ChunkView&)> on_chunk;
  };
  RecoveryScan(RecoveryEngine& engine, std::shared_ptr<const wire::Catalog> catalog, Request request);
  ~RecoveryScan();
  RecoveryScan(const RecoveryScan&) = delete;
  RecoveryScan& operator=(const RecoveryScan&) = delete;

  void start();
  /// Waits for the end of the scan; called in a fiber. Ok: every node has sent all its records.
  const Status& wait();

 private:
  struct Stream {
    NodeId node;
    rpc::Channel* channel = nullptr;  // null once the stream has ended
    uint64_t sequence = 0;
  };

  bool over() const { return open_ == 0 || !status_.ok(); }
  Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t token, const Status& status, rpc::ExecutionStatus executed) override;
  Status process_chunk(Stream& stream, ByteReader& body);
  void end(Stream& stream, const Status& status);
  void fail(NodeId node, const Status& status);

  RecoveryEngine& engine_;
  const std::shared_ptr<const wire::Catalog> catalog_;
  const Request request_;
  const std::shared_ptr<const ResultSchema> schema_;
  std::vector<Stream> streams_;
  size_t open_ = 0;
  Status status_;
  fiber::Event over_;
};

}  // namespace loam::commit
