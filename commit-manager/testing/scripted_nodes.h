// Storage nodes for tests: they follow a script, so they fail at the moment that a test chooses. Tests write records,
// index entries and intents into them directly.
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

#include "common/net/transport/transport.h"
#include "common/testing/scripted_server.h"
#include "common/wire/catalog.h"
#include "common/wire/storage.h"

namespace loam::commit {

/// The action of a node for one request.
enum class ScriptedAction : uint8_t {
  kAnswer,
  kIgnore,         ///< neither executed nor answered
  kApply,          ///< executed and not answered
  kLate,           ///< executed after the next request of its kind at the node, and not answered
  kTwice,          ///< executed twice and answered once
  kClose,          ///< not executed; the connection is closed
  kApplyAndClose,  ///< executed; the connection is closed instead of a reply
  kUnavailable,    ///< refused as a whole
  kFenced,         ///< refused as a whole
  kWrongCluster,   ///< refused as a whole
  kNoRecords,      ///< every operation is answered with kUnavailable: the node has lost its records
  kNoTable,        ///< every operation is answered with kNoSuchTable
  kMalformed,      ///< for kIntents: the reply claims that further pages follow, and its end is the begin of the page
};

/// All versions and index entries of the nodes. Tests compare it before and after recovery.
struct ScriptedState {
  std::map<wire::RecordId, std::vector<TransactionId>> versions;  ///< ascending
  /// The key is: index, key in its tree, record. The record is 0 in an index with shared entries.
  std::map<std::tuple<TableId, std::string, Key>, std::vector<bdtree::IndexEntry>> entries;

  bool operator==(const ScriptedState&) const = default;
};

/// Storage nodes with records, tree nodes and intents. One thread serves all of them over TCP. Every function that a
/// test calls holds one lock.
class ScriptedNodes final : private net::Handler {
 public:
  using Script = std::function<ScriptedAction(NodeId, wire::Opcode)>;

  explicit ScriptedNodes(uint64_t count);
  ~ScriptedNodes() override;

  wire::Catalog catalog() const;
  NodeId owner(wire::RecordId record) const;
  /// Sets the script, which chooses the action for every request, also for kAttach.
  void set_script(Script script);
  void set_page_intents(size_t count);
  /// Starts the node again with another incarnation and without its data.
  void restart(NodeId node, wire::NodeState state);
  void set_state(NodeId node, wire::NodeState state);
  void fence() { fenced_.store(true, std::memory_order_relaxed); }  // relaxed: a late effect is harmless

  /// Writes a record for an open transaction, with an intent.
  void write(SessionId session, TransactionId id, wire::RecordId record);
  /// Writes a version of a complete transaction, without an intent.
  void put(TransactionId id, wire::RecordId record);
  void remove(TransactionId id, wire::RecordId record);
  /// Adds an index without a tree. The root of its tree will lie at `node`.
  TableId index_at(NodeId node);
  void make_tree(TableId index);
  /// Drops the index with its tree nodes.
  void drop_index(TableId index);
  /// Drops the index, and excludes its entries from state().
  void forget_index(TableId index);
  /// Inserts or removes an index entry for an open transaction, with an intent. `node_bytes` is the node size of the
  /// writer.
  void change_index(SessionId session, TransactionId id, const wire::IndexChange& change, size_t node_bytes = 4'096);
  /// Inserts or removes an index entry for a complete transaction, without an intent.
  void change_index(TransactionId id, const wire::IndexChange& change);

  /// Returns all versions and index entries.
  ScriptedState state();
  /// Returns the state after the undo of all intents that the task selects.
  ScriptedState undone(const RecoveryTask& task);
  /// Describes an intent at the task's nodes that is not undone; empty if all are undone. May run beside recoverers.
  std::string find_not_undone(const RecoveryTask& task);
  /// Executes the requests that a kLate action has kept.
  void run_late();

  /// A request that was executed.
  struct Executed {
    NodeId node;
    wire::Opcode opcode{};
    TransactionId transaction;  ///< for kRevert
    std::vector<wire::RecordId> records;
    bool refused = false;   ///< for kRevert: a version was covered by another one
    uint64_t sequence = 0;  ///< 0: kAttach
  };
  /// Returns the requests executed since the last call.
  std::vector<Executed> drain_executed();

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
  /// Executes a request and returns the reply.
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
  std::map<wire::RecordId, Row> rows_;  // tree nodes
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
