// A commit manager and a storage node that do what a test tells them: for the driver's tests of lost, late, wrong and
// refused answers, which real servers do not give on demand.
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

#include "common/net/transport.h"
#include "common/rpc/scripted_test_server.h"
#include "common/wire/manager.h"
#include "common/wire/reply_window.h"
#include "common/wire/storage.h"
#include "common/wire/system_tables.h"

namespace loam::client {

/// What happens to one request.
enum class Fate : uint8_t {
  kAnswer,
  kDrop,           ///< neither executed nor answered
  kApplyAndDrop,   ///< executed, not answered
  kHold,           ///< executed; the answer waits for release_held()
  kClose,          ///< not executed; the connection is closed
  kApplyAndClose,  ///< executed; the connection is closed instead of an answer
  kError,          ///< answered with kOverloaded as a whole, not executed
  kGarbage,        ///< answered with bytes that are no message
  kWrongStream,    ///< answered with a piece of a stream that nobody asked for
  kLoseManager,    ///< answered; all connections to the commit manager are closed
  kFence,          ///< not executed: the session is fenced
  kCloseAndFence,  ///< not executed; the connection is closed, and the session is fenced
  kApplyAndFence,  ///< executed; the connection is closed instead of an answer, and the session is fenced
  kForget,         ///< executed; answered as if the answer were not known any more
};

/// One thread that serves both on loopback, with a small model behind: the commit manager decides by kComplete, and the
/// node remembers intents until a transaction is complete. There is no recovery. The script and the state belong to the
/// lock.
class ScriptedCluster final : private net::Handler {
 public:
  /// Asked for every request but kOpenSession and kAttach. The kind is that of a kPlainWrite's first operation.
  using Script = std::function<Fate(wire::Opcode, wire::WriteKind)>;

  explicit ScriptedCluster(net::TransportOptions options = {});
  ~ScriptedCluster() override;

  const std::string& address() const { return manager_address_; }
  void set_script(Script script);
  /// Sends the answers that kHold kept back.
  void release_held();
  /// The session that is open is fenced, at both servers; every open transaction of it has `outcome` from now on.
  void fence(wire::Outcome outcome = wire::Outcome::kAborted);
  /// Sets what AskOutcomes is told from now on of every transaction of a fenced session that is not completed.
  void set_outcome(wire::Outcome outcome);
  /// Records were lost, and the loss was accepted: commits of ids that were given out until now are refused (R9).
  void accept_loss();
  /// kTable's field has an index, which is being built: transactions maintain it, in a new version of the catalog.
  void add_index();
  /// Refuses the next `count` attempts to open a session with kUnavailable. Attempts to resume one are not refused.
  void refuse_opens(size_t count);
  /// Closes all connections to the commit manager, or to the node.
  void drop_connections(bool manager);
  /// The node's state in the catalog, and its incarnation; the catalog has a new version.
  void set_node(wire::NodeState state, Incarnation incarnation);
  /// Adds a second node, at whose address no server listens, in a new version of the catalog. It owns the odd shards,
  /// but not that of kTable's key 1.
  void set_second_node(wire::NodeState state);
  /// Whether it owns the record of kTable.
  static bool at_second_node(Key key) { return second_owns(kTable, key); }
  /// What scans are told, all of which are refused with kOverloaded.
  static constexpr uint64_t kScanRetryNs = 150'000'000;
  /// Scans are answered with a chunk in that slot of the memory that they offered.
  void set_scan_slot(uint32_t slot);
  /// Scans of kTable are answered with a chunk for each record, for queries that select x alone.
  void serve_scans();
  /// Sets the cluster that the next sessions name. With `compares`, clients that name another one are refused.
  void set_cluster(wire::ClusterId cluster, bool compares);
  /// Sets the node's cluster: it refuses clients of another one.
  void set_node_cluster(wire::ClusterId cluster);
  /// With the next sessions.
  void set_lease(uint64_t lease_ns);

  /// What the node remembers of a transaction that is not complete (R5).
  struct Intents {
    std::set<wire::RecordId> records;
    std::vector<wire::IndexChange> index_changes;
  };

  struct Seen {
    std::vector<wire::Opcode> requests;       ///< in order, both servers
    std::map<uint64_t, bool> completed;       ///< id → committed
    std::map<uint64_t, Intents> intents;      ///< by transaction
    std::set<uint64_t> in_index;              ///< transactions that have given or taken an entry of the index
    std::set<uint64_t> released;              ///< snapshot numbers
    std::map<wire::RecordId, uint64_t> rows;  ///< newest versions of transactional records
    size_t refused = 0;                       ///< commits, after accept_loss()
    size_t connections = 0;                   ///< that storage clients made
    size_t out_of_sequence = 0;     ///< requests whose number did not rise over those before it at that server (R3)
    size_t begun = 0;               ///< read-write ids given out
    size_t executed_twice = 0;      ///< repeated requests whose first answer was not known any more
    size_t repeated = 0;            ///< requests answered as the first time
    size_t opened = 0;              ///< sessions
    size_t resumed = 0;             ///< connections that went on with one
    size_t open_scans = 0;          ///< neither answered, nor cancelled, nor gone with their connection
    std::set<std::string> created;  ///< tables that clients made and have not dropped
    wire::RenewSession renewal;     ///< the last
  };
  Seen seen() const;
  size_t count(wire::Opcode opcode) const;

  /// The table that exists: (x int64), transactional; one without transactions has the next id, then the index.
  static constexpr TableId kTable{1024};
  static constexpr TableId kPlainTable{1025};
  static constexpr TableId kIndex{1026};

 private:
  struct Held {
    net::Connection* connection;
    Buffer answer;
  };

  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_connected(net::Connection& connection) override;
  void on_closed(net::Connection& connection, const Status& status) override;

  bool serve(net::Connection& connection, Bytes message);
  static bool repeatable(wire::Opcode opcode);
  /// The first answer of a request that is repeated, else a refusal, which is its answer from then on (R3).
  Buffer refuse_once(const net::Connection& connection, const wire::Envelope& envelope);
  /// Looks into the window of answers; the answer to send, empty for none.
  Buffer execute_once(const net::Connection& connection, const wire::Envelope& envelope, ByteReader& reader);
  Buffer open_session(const wire::Envelope& envelope, ByteReader& reader);
  /// Executes; the rpc::encoded answer, empty for one-way messages.
  Buffer execute(const wire::Envelope& envelope, ByteReader& reader);
  Buffer execute_manager(const wire::Envelope& envelope, ByteReader& reader);
  Buffer create_table(const wire::Envelope& envelope, const wire::CreateTable& message);
  Buffer drop_table(const wire::Envelope& envelope, const wire::DropTable& message);
  void send_rows(net::Connection& connection, const wire::Envelope& envelope, ByteReader reader);
  wire::WriteResult write(const wire::Write& message, const wire::Write::Operation& operation);
  wire::WriteResult revert(wire::RecordId record, TransactionId transaction);
  wire::Completed complete(const wire::Complete& message);
  wire::Outcome outcome_of(TransactionId id) const;
  std::set<uint64_t> transactions_in_index() const;
  wire::Catalog catalog() const;
  static bool second_owns(TableId table, Key key);

  mutable std::mutex mutex_;
  Script script_;
  Seen seen_;
  std::vector<Held> held_;
  std::map<wire::RecordId, std::vector<std::pair<uint64_t, Buffer>>> versions_;  // oldest first; empty row: removed
  rpc::PlainRecords plain_;
  std::map<uint64_t, std::set<wire::RecordId>> intents_;  // records, by transaction
  std::set<uint64_t> open_ids_;
  std::set<uint64_t> upgradable_;  // snapshots that are held
  uint64_t next_id_ = 100;
  uint64_t next_number_ = 1;
  std::optional<wire::ReplyWindow> manager_window_, node_window_;  // of the session
  std::map<const net::Connection*, uint64_t> last_sequence_;
  SessionId session_{6};
  bool fenced_ = true;  // there is no session
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
  bool drop_[2] = {false, false};  // all connections to the commit manager, to the node
  std::atomic<bool> stop_{false};
  std::atomic<bool> release_{false};
  std::thread thread_;
};

}  // namespace loam::client
