// Storage nodes that do what a test tells them, and a commit manager's part: for tests of what real servers do not do
// on demand.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/net/transport.h"
#include "common/rpc/scripted_test_server.h"
#include "common/wire/catalog.h"
#include "common/wire/storage.h"
#include "common/wire/undo_record.h"

namespace loam::commit {

/// What a node does with one request.
enum class NodeFate : uint8_t {
  kAnswer,
  kIgnore,         ///< neither executed nor answered
  kApplyAndClose,  ///< executed; the connection is closed instead of an answer
  kClose,          ///< not executed; the connection is closed
  kUnavailable,    ///< refused as a whole
  kFenced,         ///< refused as a whole
  kNoRecords,      ///< every operation is answered with kUnavailable: the node has lost its records
};

/// A node's record of what transactions did, and nodes that serve it over TCP from one thread. Everything that a test
/// calls is under one lock.
class ScriptedNodes final : private net::Handler {
 public:
  using Script = std::function<NodeFate(NodeId, wire::Opcode)>;

  explicit ScriptedNodes(uint64_t count);
  ~ScriptedNodes() override;

  wire::Catalog catalog() const;
  /// Called for every request, kAttach too, except kScanCredit.
  void set_script(Script script);
  /// The node starts anew: other incarnation, everything that it had is lost.
  void restart(NodeId node);

  /// A dead client's transaction: `records` of it are written, `named` of them stand in its undo record.
  void leave(TransactionId id, wire::UndoState state, const std::vector<wire::RecordId>& named,
             const std::vector<wire::RecordId>& written);
  /// Called for writes of records that are no undo records.
  void leave_garbage(TransactionId id);
  void fence() { fenced_.store(true, std::memory_order_relaxed); }  // relaxed: seen soon

  std::set<wire::RecordId> written(TransactionId id) const;
  size_t undo_records() const;

 private:
  struct Node {
    NodeId id;
    Incarnation incarnation;
    std::string address;
  };

  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_connected(net::Connection&) override {}
  void on_closed(net::Connection&, const Status&) override {}

  bool serve(net::Connection& connection, Bytes message);
  static void refuse_operations(net::Connection& connection, const wire::Envelope& envelope, ByteReader& reader);
  void execute(net::Connection* connection, const Node& node, const wire::Envelope& envelope, ByteReader& reader);
  void scan(net::Connection* connection, const Node& node, uint64_t sequence, const wire::Scan& message);
  NodeId owner(wire::RecordId record) const;

  mutable std::mutex mutex_;
  Script script_;
  std::vector<Node> nodes_;
  rpc::PlainRecords undo_;  // the undo records at all nodes
  std::map<TransactionId, std::set<wire::RecordId>> written_;
  uint64_t next_incarnation_ = 100;
  wire::CatalogVersion version_ = 1;

  std::atomic<bool> fenced_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace loam::commit
