// One pass of the recoverer over the nodes of an index.
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

/// One pass over a non-transactional table at every node that owns a shard: complete, or failed. It promises the
/// records that do not change while it runs (R21). Nothing of it is to be used before all nodes are done.
///
/// Owner: a fiber, which waits. The destructor ends open streams. Worker's thread only.
class RecoveryScan final : private rpc::Caller {
 public:
  struct Request {
    TableId table;
    Schema schema;
    Query query;
    std::string name;  ///< of the table, for messages
    std::function<void(const ChunkView&)> on_chunk;
  };
  RecoveryScan(RecoveryEngine& engine, std::shared_ptr<const wire::Catalog> catalog, Request request);
  ~RecoveryScan();
  RecoveryScan(const RecoveryScan&) = delete;
  RecoveryScan& operator=(const RecoveryScan&) = delete;

  void start();
  /// In a fiber: until it is over. Ok only if every record of the table has come.
  const Status& wait();

 private:
  struct Stream {
    NodeId node;
    rpc::Channel* channel = nullptr;  // while it is open
    uint64_t sequence = 0;
  };

  bool over() const { return open_ == 0 || !status_.ok(); }
  Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t token, const Status& status, rpc::Executed executed) override;
  Status take_chunk(Stream& stream, ByteReader& body);
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
