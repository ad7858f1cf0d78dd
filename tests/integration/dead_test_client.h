// A client that executes the steps of a commit one by one, and dies where a test demands it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/worker.h"
#include "common/wire/manager.h"
#include "common/wire/storage.h"

namespace loam::client {

/// A session whose messages the test sends one by one. Every step blocks the test's thread until it is answered. The
/// destructor closes the connections without ending the session, so the cluster sees a dead client.
class DeadTestClient {
 public:
  explicit DeadTestClient(const std::string& manager_address);
  ~DeadTestClient();
  DeadTestClient(const DeadTestClient&) = delete;
  DeadTestClient& operator=(const DeadTestClient&) = delete;

  SessionId session() const { return opened_.session; }

  /// Begins `count` transactions in one snapshot; returns the first id.
  TransactionId begin(uint32_t count = 1);
  void update(TransactionId id, const std::vector<wire::RecordId>& records, Bytes row);
  void revert(TransactionId id, const std::vector<wire::RecordId>& records);
  /// Writes a node of an index's tree with intents for a transaction's changes of the index (R5, intents before
  /// answers). `expected` 0: the node is new.
  void write_tree_node(const wire::RecordId& node, Version expected, Bytes row,
                       const std::vector<wire::IndexIntent>& intents);
  void complete(TransactionId id, bool committed);
  /// Sends Complete without waiting for the reply. The message has left this process when the function returns.
  void send_complete(TransactionId id, bool committed);
  /// Updates the records of many transactions and leaves them open: id `first` + i writes `records[i]`.
  void leave_open(TransactionId first, const std::vector<std::vector<wire::RecordId>>& records, Bytes row);

  /// Number of intents of these transactions at all storage nodes.
  size_t intents(const std::vector<TransactionId>& ids);

 private:
  NodeId owner(wire::RecordId record) const { return opened_.catalog.shards.owner(record.table, record.key); }
  rpc::Channel& node(NodeId id);
  template <wire::Message Reply, wire::Message M>
  Reply request(rpc::Channel& channel, const M& message);

  std::unique_ptr<rpc::Worker> worker_;
  class Hook;
  std::unique_ptr<Hook> hook_;
  std::unique_ptr<rpc::Channel> manager_;
  std::map<NodeId, std::unique_ptr<rpc::Channel>> nodes_;
  wire::OpenSessionReply opened_;
  Snapshot snapshot_;
};

}  // namespace loam::client
