// A client that does the steps of a commit one by one, and dies where a test says.
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
#include "common/wire/undo_record.h"

namespace loam::client {

/// A session of its own, played by hand. Every step blocks the test's thread until it is answered. The destructor drops
/// the connections without a word: for the cluster the client is dead.
class DeadTestClient {
 public:
  explicit DeadTestClient(const std::string& manager_address);
  ~DeadTestClient();
  DeadTestClient(const DeadTestClient&) = delete;
  DeadTestClient& operator=(const DeadTestClient&) = delete;

  SessionId session() const { return opened_.session; }

  /// The first of `count` ids; all have one snapshot.
  TransactionId begin(uint32_t count = 1);
  void insert_undo_record(TransactionId id, const std::vector<wire::RecordId>& records,
                          const std::vector<wire::IndexChange>& changes = {});
  /// The mark of R1, or the swap of R4.
  void change_undo_record(TransactionId id, wire::UndoState state);
  void remove_undo_record(TransactionId id);
  void update(TransactionId id, const std::vector<wire::RecordId>& records, Bytes row);
  void revert(TransactionId id, const std::vector<wire::RecordId>& records);
  void complete(TransactionId id, bool committed);
  /// Undo records and updates of many transactions, `records[i]` written by id `first` + i.
  void leave_open(TransactionId first, const std::vector<std::vector<wire::RecordId>>& records, Bytes row);

  /// Undo records that exist, among these.
  size_t undo_records(const std::vector<TransactionId>& ids);

 private:
  struct Undo {
    Version version;
    Buffer row;  // as it was inserted
    wire::UndoState state = wire::UndoState::kPending;
  };

  NodeId owner(wire::RecordId record) const { return opened_.catalog.shards.owner(record.table, record.key); }
  rpc::Channel& node(NodeId id);
  template <wire::Message Reply, wire::Message M>
  Reply ask(rpc::Channel& channel, const M& message);
  wire::WriteResult write_undo_record(TransactionId id, wire::WriteKind kind);

  std::unique_ptr<rpc::Worker> worker_;
  class Hook;
  std::unique_ptr<Hook> hook_;
  std::unique_ptr<rpc::Channel> manager_;
  std::map<NodeId, std::unique_ptr<rpc::Channel>> nodes_;
  wire::SessionOpened opened_;
  Snapshot snapshot_;
  std::map<TransactionId, Undo> undo_;
};

}  // namespace loam::client
