// ScriptedCluster: a commit manager and a storage node that follow a script. The driver's tests use it for lost,
// late, wrong and refused answers, which real servers do not give on demand.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/net/transport/transport.h"
#include "common/testing/scripted_server.h"
#include "common/wire/manager.h"
#include "common/wire/reply_window.h"
#include "common/wire/storage.h"
#include "common/wire/system_tables.h"

namespace loam::client {

/// The action of the script for one request.
enum class MutantResult : uint8_t {
  kAnswer,
  kDrop,           ///< neither executed nor answered
  kApplyAndDrop,   ///< executed, not answered
  kHold,           ///< executed; the reply waits for release_held()
  kClose,          ///< not executed; the connection is closed
  kApplyAndClose,  ///< executed; the connection is closed instead of a reply
  kError,          ///< answered with kOverloaded as a whole, not executed
  kGarbage,        ///< answered with bytes that are not a message
  kWrongStream,    ///< answered with a piece of a stream that was not requested
  kLoseManager,    ///< answered; all connections to the commit manager are closed
  kFence,          ///< not executed: the session is fenced
  kCloseAndFence,  ///< not executed; the connection is closed, and the session is fenced
  kApplyAndFence,  ///< executed; the connection is closed instead of a reply, and the session is fenced
  kForget,         ///< executed; answered as if the server had dropped the reply
};

/// Serves both on loopback by one thread. A small model executes the requests: the commit manager decides by
/// kComplete, and the node keeps intents until a transaction is complete. There is no recovery. The lock guards the
/// script and the state.
class ScriptedCluster final : private net::Handler {
 public:
  /// Called for every request except kOpenSession and kAttach. The kind is that of a kPlainWrite's first operation.
  using Script = std::function<MutantResult(wire::Opcode, wire::WriteKind)>;

  explicit ScriptedCluster(net::TransportOptions options = {});
  ~ScriptedCluster() override;

  const std::string& address() const { return manager_address_; }
  void set_script(Script script);
  /// Sends the replies that kHold kept back.
  void release_held();
  /// Fences the open session at both servers. From now on every open transaction of it has this outcome.
  void fence(wire::Outcome outcome = wire::Outcome::kAborted);
  /// Sets the reply of GetOutcomes for every transaction of a fenced session that is not completed.
  void set_outcome(wire::Outcome outcome);
  /// Acts as if an operator had accepted a loss of records: commits of all ids given out until now are refused (R9,
  /// leases of storage nodes).
  void accept_loss();
  /// Adds an index of kTable's field, which is being built, in a new version of the catalog. Transactions maintain
  /// it.
  void add_index();
  /// Refuses the next `count` attempts to open a session with kUnavailable. Attempts to resume one are not refused.
  void refuse_opens(size_t count);
  /// Closes all connections to the commit manager, or to the node.
  void drop_connections(bool manager);
  /// Sets the node's state and incarnation in a new version of the catalog.
  void set_node(wire::NodeState state, Incarnation incarnation);
  /// Adds a second node, at whose address no server listens, in a new version of the catalog. It owns the odd shards,
  /// but not that of kTable's key 1.
  void set_second_node(wire::NodeState state);
  /// True if the second node owns the record of kTable.
  static bool at_second_node(Key key) { return second_owns(kTable, key); }
  /// Advice (retry_after_ns) to scans, which are refused with kOverloaded.
  static constexpr uint64_t kScanRetryNs = 150'000'000;
  /// Answers scans with a chunk in that slot of the memory that they have offered.
  void set_scan_slot(uint32_t slot);
  /// Answers scans of kTable with a chunk for each record. The queries must select x only.
  void serve_scans();
  /// Sets the cluster that the next sessions name. With `compares`, clients that name another one are refused.
  void set_cluster(wire::ClusterId cluster, bool compares);
  /// Sets the node's cluster: it refuses clients of another one.
  void set_node_cluster(wire::ClusterId cluster);
  /// Sets the lease of the next sessions.
  void set_lease(uint64_t lease_ns);

  /// The intents that the node keeps of a transaction that is not complete (R5, intents before answers).
  struct Intents {
    std::set<wire::RecordId> records;
    std::vector<wire::IndexChange> index_changes;
  };

  /// Events and state that the tests check.
  struct Observations {
    std::vector<wire::Opcode> requests;       ///< of both servers, in their order
    std::map<uint64_t, bool> completed;       ///< id → committed
    std::map<uint64_t, Intents> intents;      ///< by transaction
    std::set<uint64_t> in_index;              ///< transactions with a change of the index
    std::set<uint64_t> released;              ///< snapshot numbers
    std::map<wire::RecordId, uint64_t> rows;  ///< newest versions of transactional records
    size_t refused = 0;                       ///< refused commits, after accept_loss()
    size_t connections = 0;                   ///< connections that clients made to the node
    size_t out_of_sequence = 0;               ///< requests without a rising number at their server (R3)
    size_t begun = 0;                         ///< read-write ids given out
    size_t executed_twice = 0;                ///< repeated requests whose first reply was dropped
    size_t repeated = 0;                      ///< repeated requests that got their first reply
    size_t opened = 0;                        ///< sessions opened
    size_t resumed = 0;                       ///< connections that resumed a session
    size_t open_scans = 0;                    ///< scans not answered, cancelled or lost with their connection
    std::set<std::string> created;            ///< tables that clients created and have not dropped
    wire::RenewSession renewal;               ///< the last renewal
  };
  Observations observations() const;
  size_t count(wire::Opcode opcode) const;

  /// The tables: kTable (x int64), transactional; kPlainTable, non-transactional; kIndex, the table of the index's
  /// tree.
  static constexpr TableId kTable{1024};
  static constexpr TableId kPlainTable{1025};
  static constexpr TableId kIndex{1026};

 private:
  struct HeldReply {
    net::Connection* connection;
    Buffer answer;
  };

  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_connected(net::Connection& connection) override;
  void on_closed(net::Connection& connection, const Status& status) override;

  bool serve(net::Connection& connection, Bytes message);
  static bool repeatable(wire::Opcode opcode);
  /// Returns the first reply of a repeated request; otherwise a refusal, which becomes the reply of the request
  /// (R3).
  Buffer refuse_once(const net::Connection& connection, const wire::Envelope& envelope);
  /// Executes a request unless the reply window has its reply. Returns the reply to send; empty: none.
  Buffer execute_once(const net::Connection& connection, const wire::Envelope& envelope, ByteReader& reader);
  Buffer open_session(const wire::Envelope& envelope, ByteReader& reader);
  /// Executes a request. Returns the encoded reply; empty for one-way messages.
  Buffer execute(const wire::Envelope& envelope, ByteReader& reader);
  Buffer execute_manager(const wire::Envelope& envelope, ByteReader& reader);
  Buffer create_table(const wire::Envelope& envelope, const wire::CreateTable& message);
  Buffer drop_table(const wire::Envelope& envelope, const wire::DropTable& message);
  Buffer rename_table(const wire::Envelope& envelope, const wire::RenameTable& message);
  void send_rows(net::Connection& connection, const wire::Envelope& envelope, ByteReader reader);
  wire::WriteResult write(const wire::Write& message, const wire::Write::Operation& operation);
  wire::WriteResult revert(wire::RecordId record, TransactionId transaction);
  wire::CompleteReply complete(const wire::Complete& message);
  wire::Outcome outcome_of(TransactionId id) const;
  std::set<uint64_t> transactions_in_index() const;
  wire::Catalog catalog() const;
  static bool second_owns(TableId table, Key key);

  mutable std::mutex mutex_;
  Script script_;
  Observations observations_;
  std::vector<HeldReply> held_;
  std::map<wire::RecordId, std::vector<std::pair<uint64_t, Buffer>>> versions_;  // oldest first; empty row: removed
  rpc::PlainRecords plain_;
  std::map<uint64_t, std::set<wire::RecordId>> intents_;  // records, by transaction
  std::set<uint64_t> open_ids_;
  std::set<uint64_t> upgradable_;  // numbers of held snapshots
  uint64_t next_id_ = 100;
  uint64_t next_number_ = 1;
  std::optional<wire::ReplyWindow> manager_window_, node_window_;  // reply windows of the session
  std::map<const net::Connection*, uint64_t> last_sequence_;
  SessionId session_{6};
  bool fenced_ = true;  // true: no session is open
  wire::Outcome outcome_ = wire::Outcome::kAborted;
  uint64_t lost_before_ = 0;  // commits of lower ids are refused
  size_t refuse_opens_ = 0;
  uint64_t lease_ns_ = 0;
  wire::ClusterId cluster_{1, 2};
  bool compares_clusters_ = true;
  wire::ClusterId node_cluster_{1, 2};
  std::optional<uint32_t> scan_slot_;
  bool serves_scans_ = false;
  std::set<std::pair<const net::Connection*, uint64_t>> scans_;  // open ones, by their sequence
  std::map<std::string, wire::TableInfo> created_;
  uint64_t next_table_ = kIndex.value + 1;
  bool indexed_ = false;
  wire::NodeState node_state_ = wire::NodeState::kLive;
  Incarnation incarnation_{1};
  std::optional<wire::NodeState> second_;
  wire::CatalogVersion catalog_version_ = 1;

  std::unique_ptr<net::Transport> transport_;
  std::string manager_address_;
  std::string node_address_;
  uint16_t manager_port_ = 0;
  std::set<net::Connection*> connections_;
  bool drop_[2] = {false, false};  // close all connections to: the commit manager, the node
  std::atomic<bool> stop_{false};
  std::atomic<bool> release_{false};
  std::thread thread_;
};

}  // namespace loam::client
