// Storage nodes that do what a test tells them, and what transactions have left there: for tests of what real servers
// do not do on demand.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <loam/bdtree/index_entries.h>
#include <loam/bdtree/node_store.h>
#include <loam/commit/core.h>

#include "common/net/transport.h"
#include "common/rpc/scripted_test_server.h"
#include "common/wire/catalog.h"
#include "common/wire/storage.h"

namespace loam::commit {

/// What a node does with one request.
enum class NodeFate : uint8_t {
  kAnswer,
  kIgnore,         ///< neither executed nor answered
  kApply,          ///< executed and not answered
  kLate,           ///< as kApply, but executed only after the next request of its kind at the node
  kTwice,          ///< executed twice and answered once
  kClose,          ///< not executed; the connection is closed
  kApplyAndClose,  ///< executed; the connection is closed instead of an answer
  kUnavailable,    ///< refused as a whole
  kFenced,         ///< refused as a whole
  kNoRecords,      ///< every operation is answered with kUnavailable: the node has lost its records
  kNoTable,        ///< every operation is answered with kNoSuchTable
  kMalformed,      ///< of kIntents: the answer says that there is more behind the beginning
};

/// Everything that transactions have left: what tests compare.
struct ScriptedState {
  std::map<wire::RecordId, std::vector<TransactionId>> versions;  ///< rising
  /// By index, key of its tree, and record (0 where the entries are shared).
  std::map<std::tuple<TableId, std::string, Key>, std::vector<bdtree::IndexEntry>> entries;

  bool operator==(const ScriptedState&) const = default;
};

/// Storage nodes with records, nodes of indexes and intents, which serve them over TCP from one thread. Everything that
/// a test calls is under one lock.
class ScriptedNodes final : private net::Handler {
 public:
  using Script = std::function<NodeFate(NodeId, wire::Opcode)>;

  explicit ScriptedNodes(uint64_t count);
  ~ScriptedNodes() override;

  wire::Catalog catalog() const;
  NodeId owner(wire::RecordId record) const;
  /// Called for every request, kAttach too.
  void set_script(Script script);
  void set_page_intents(size_t count);
  /// The node starts anew: other incarnation, everything that it had is lost.
  void restart(NodeId node, wire::NodeState state);
  void set_state(NodeId node, wire::NodeState state);
  void fence() { fenced_.store(true, std::memory_order_relaxed); }  // relaxed: seen soon

  /// An open transaction writes a record.
  void write(SessionId session, TransactionId id, wire::RecordId record);
  /// A version without an intent: of a transaction that is complete.
  void put(TransactionId id, wire::RecordId record);
  void remove(TransactionId id, wire::RecordId record);
  /// An index whose tree's root lies at `node`, without a tree.
  TableId index_at(NodeId node);
  void make_tree(TableId index);
  /// Its nodes are gone.
  void drop_index(TableId index);
  /// Drops the index, and leaves its entries out of state() from now on.
  void forget_index(TableId index);
  /// An open transaction gives the record the value, or takes it away. `node_bytes`: of the writer's tree.
  void change_index(SessionId session, TransactionId id, const wire::IndexChange& change, size_t node_bytes = 4'096);
  /// A complete transaction gives the record the value, or takes it away: no intent is left.
  void change_index(TransactionId id, const wire::IndexChange& change);

  ScriptedState state();
  /// What state() is when the intents that the task undoes are undone.
  ScriptedState undone(const RecoveryTask& task);
  /// Something that the task's nodes name and that is not undone; empty: there is nothing. Others may be at work.
  std::string left(const RecoveryTask& task);
  /// Executes requests that are late.
  void run_late();

  struct Executed {
    NodeId node;
    wire::Opcode opcode{};
    TransactionId transaction;  ///< of kRevert
    std::vector<wire::RecordId> records;
    bool refused = false;  ///< of kRevert: a record was covered
  };
  /// Since the last call.
  std::vector<Executed> take_executed();

 private:
  class Store;
  struct Node {
    NodeId id;
    Incarnation incarnation;
    std::string address;
    wire::NodeState state = wire::NodeState::kLive;
  };
  struct StoredIntent {
    NodeId node;
    wire::Intent intent;  ///< its key is `key`
    std::string key;
  };
  struct Row {
    Version version;
    Buffer row;
  };
  struct Late {
    NodeId node;
    Buffer message;
  };

  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_connected(net::Connection&) override {}
  void on_closed(net::Connection&, const Status&) override {}

  bool serve(net::Connection& connection, Bytes message);
  /// Executes a request; its answer.
  Buffer execute(NodeId node, Bytes message);
  void run_late(NodeId node, wire::Opcode opcode);
  static Buffer refuse_operations(StatusCode code, Bytes message);
  Buffer attach(NodeId node, const wire::Attach& message, uint64_t sequence) const;
  Buffer intents(NodeId node, const wire::Intents& message, uint64_t sequence) const;
  Buffer revert(NodeId node, const wire::Revert& message, uint64_t sequence);
  wire::WriteResult revert(TransactionId id, wire::RecordId record);
  wire::ReadResult read_row(wire::RecordId record) const;
  wire::WriteResult write_row(const wire::PlainWrite& message);
  void remember(NodeId node, const wire::Intent& intent);
  Status edit_index(TransactionId id, const wire::IndexChange& change, size_t node_bytes, bool intent);
  std::vector<bdtree::IndexEntry> entries(TableId index, const std::string& key, Key record, bool shared);

  mutable std::mutex mutex_;
  Script script_;
  std::vector<Node> nodes_;
  std::map<wire::RecordId, std::vector<TransactionId>> versions_;
  std::map<wire::RecordId, Row> rows_;  // of indexes
  std::map<wire::IntentPosition, StoredIntent> intents_;
  std::map<TransactionId, SessionId> sessions_;
  std::set<std::tuple<TableId, std::string, Key>> known_entries_;
  std::vector<Late> late_;
  std::vector<Executed> executed_;
  size_t page_intents_ = 1'000;
  uint64_t last_intent_ = 0;
  uint64_t last_version_ = 0;
  uint64_t last_tree_node_ = 1;
  uint64_t last_index_ = 5'000;
  uint64_t next_incarnation_ = 100;
  wire::CatalogVersion version_ = 1;

  std::atomic<bool> fenced_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace loam::commit
