// Finds every undo record that there is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "client-lib/src/recovery/recovery_node.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"
#include "common/wire/catalog.h"

namespace loam::client {

class RecoveryEngine;

/// One pass over the transaction table at every node that owns a shard (R11, R21): complete, or failed. Nothing of it
/// is used before all nodes are done.
///
/// Owner: the engine, until done(). The destructor ends what is under way. Worker's thread only.
class TransactionScan final : private NodeCaller {
 public:
  TransactionScan(RecoveryEngine& engine, std::shared_ptr<const wire::Catalog> catalog);
  ~TransactionScan();
  TransactionScan(const TransactionScan&) = delete;
  TransactionScan& operator=(const TransactionScan&) = delete;

  void start();
  bool done() const { return open_ == 0 || !status_.ok(); }
  /// Ok only if every record of the table is in tasks().
  const Status& status() const { return status_; }
  /// All of kind kFound.
  std::vector<RecoveryTask>& tasks() { return tasks_; }

 private:
  struct Stream {
    RecoveryNode* node = nullptr;
    uint64_t sequence = 0;
    bool open = false;
  };

  Status on_reply(uint32_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint32_t token, const Status& status) override;
  Status take_chunk(Stream& stream, ByteReader& body);
  void end(Stream& stream, const Status& status);
  void fail(NodeId node, const Status& status);

  RecoveryEngine& engine_;
  const std::shared_ptr<const wire::Catalog> catalog_;
  Query query_;
  std::shared_ptr<const ResultSchema> schema_;
  std::vector<Stream> streams_;
  std::vector<RecoveryTask> tasks_;
  size_t open_ = 0;
  Status status_;
};

}  // namespace loam::client
