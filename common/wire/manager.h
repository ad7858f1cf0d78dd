// Messages between the commit manager and clients, and between the commit manager and storage nodes.
#pragma once

#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/snapshot/publication.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/catalog.h"
#include "common/wire/fence_set.h"
#include "common/wire/identity.h"
#include "common/wire/message.h"

namespace loam::wire {

// ---- client → commit manager -------------------------------------------------------------------------------------

/// The first message of a client on a connection: opens a session, or resumes one on a new connection (R3, idempotent
/// requests within a session). To resume, the client names the session and its epoch. The commit manager then closes
/// the earlier connection of the session, and the client repeats all unanswered requests with their sequences.
/// kFenced: the session has ended. kWrongCluster: the client names another cluster than that of the commit manager.
struct OpenSession {
  static constexpr Opcode kOpcode = Opcode::kOpenSession;
  std::string client_name;     ///< program and host, for operators
  SessionId resume{};          ///< the session to resume; 0: open a new one
  uint64_t manager_epoch = 0;  ///< epoch of the session to resume
  ClusterId cluster{};         ///< cluster of the client's earlier sessions; zero: it had none

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.client_name), v(m.resume), v(m.manager_epoch), v(m.cluster);
  }
};

/// Reply to OpenSession.
struct OpenSessionReply {
  static constexpr Opcode kOpcode = Opcode::kOpenSessionReply;
  SessionId session;
  uint64_t manager_epoch = 0;
  std::string admin_address;  ///< address of the commit manager's gRPC administration; empty if it has none
  Catalog catalog;
  /// Time after which the commit manager fences a silent session and recovers its transactions (R7, fence barrier;
  /// R8, recovery after the fence).
  uint64_t lease_ns = 0;
  ClusterId cluster{};

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.session), v(m.manager_epoch), v(m.admin_address), v(m.catalog), v(m.lease_ns), v(m.cluster);
  }
};

/// Renews the lease of the session, as every message of the session does. A client that has no other message to send
/// sends this one. It also names the registered snapshots that the client still holds (R14, refusal of old snapshots).
/// The commit manager releases all others with numbers up to `newest`. The reply window does not keep the reply,
/// because a repetition is harmless.
struct RenewSession {
  static constexpr Opcode kOpcode = Opcode::kRenewSession;
  uint64_t newest = 0;         ///< the highest snapshot number that the client has received
  std::vector<uint64_t> held;  ///< numbers of the held snapshots, ascending

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.newest), v(m.held);
  }
};

/// Reply to RenewSession.
struct RenewSessionReply {
  static constexpr Opcode kOpcode = Opcode::kRenewSessionReply;
  CatalogVersion catalog_version = 0;  ///< the present version, so that the client may fetch a newer catalog

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.catalog_version);
  }
};

/// Asks for the outcomes of transactions of an ended session (R4, outcomes from the commit log). The client of this
/// session asks within its next session. The commit manager keeps outcomes for a limited time, whether or not a
/// client has asked.
struct GetOutcomes {
  static constexpr Opcode kOpcode = Opcode::kGetOutcomes;
  std::vector<TransactionId> ids;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.ids);
  }
};

/// The outcome of a transaction.
enum class Outcome : uint8_t {
  kForgotten = 1,  ///< the commit manager no longer knows it, or it never began
  kPending = 2,    ///< its session is open, or its commit is not flushed yet: ask again later
  kCommitted = 3,
  kAborted = 4,
};

/// Reply to GetOutcomes, in the order of the ids.
struct GetOutcomesReply {
  static constexpr Opcode kOpcode = Opcode::kGetOutcomesReply;
  std::vector<Outcome> outcomes;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.outcomes);
  }
};

/// Begins transactions. A client gathers the begins of its fibers into one Begin. A fiber that begins after the Begin
/// was sent waits for the next one (R12, ids at begin).
struct Begin {
  static constexpr Opcode kOpcode = Opcode::kBegin;
  uint32_t read_write = 0;           ///< number of read-write transactions to begin
  bool read_only = false;            ///< whether to register a snapshot for read-only transactions, which share it
  bool upgradable = false;           ///< whether to register a snapshot whose transaction may write later
  std::vector<uint64_t> upgrades{};  ///< numbers of upgradable snapshots whose transactions write from now on

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.read_write), v(m.read_only), v(m.upgradable), v(m.upgrades);
  }
};

/// Largest number of ids that one Begin may ask for.
inline constexpr uint32_t kMaxBegins = 4096;

/// Reply to Begin. The new ids are first_id … first_id + read_write + upgrades − 1. The last ones belong to
/// `upgrades`, in their order. Each id is higher than every version that its snapshot sees. The snapshot stays open
/// until each id is completed, and until the client releases the registered numbers. The commit manager treats an
/// upgradable snapshot from its begin as the snapshot of a read-write transaction (R20, garbage and tombstones).
struct BeginReply {
  static constexpr Opcode kOpcode = Opcode::kBeginReply;
  TransactionId first_id;
  uint64_t snapshot_number = 0;    ///< number of the read-only snapshot; 0 unless asked for
  uint64_t upgradable_number = 0;  ///< number of the upgradable snapshot; 0 unless asked for
  Snapshot snapshot;               ///< the snapshot of all these transactions
  Version seen_by_all;             ///< every open and later snapshot sees all versions up to this (R13, R27)
  /// A power failure undoes no commit up to this version that the snapshot sees (R11, commit log).
  Version durable;
  CatalogVersion catalog_version = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.first_id), v(m.snapshot_number), v(m.upgradable_number), v(m.snapshot), v(m.seen_by_all), v(m.durable);
    v(m.catalog_version);
  }
};

/// Reports the outcomes of transactions of this session (R1, commit order; R2, abort order). The commit manager
/// decides: before it answers, it appends the ids that it accepts as committed to the commit log, and later snapshots
/// see them. A repetition is harmless.
struct Complete {
  static constexpr Opcode kOpcode = Opcode::kComplete;
  /// The outcome of one transaction, as the client proposes it.
  struct Completion {
    TransactionId id;
    bool committed = false;  ///< whether the client commits; otherwise it has undone the transaction

    template <class Self, class V>
    static void fields(Self& m, V& v) {
      v(m.id), v(m.committed);
    }
  };
  std::vector<Completion> outcomes;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.outcomes);
  }
};

/// Reply to Complete.
struct CompleteReply {
  static constexpr Opcode kOpcode = Opcode::kCompleteReply;
  /// The transactions that the commit manager did not commit: since their begin an operator has accepted the loss of
  /// records that they may have written (R9, leases of storage nodes). They stay open until the client has undone
  /// them and completes them as aborted.
  std::vector<TransactionId> refused;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.refused);
  }
};

/// Releases registered snapshots, read-only or upgradable, that the client no longer uses. One-way: it has no reply.
struct ReleaseSnapshots {
  static constexpr Opcode kOpcode = Opcode::kReleaseSnapshots;
  std::vector<uint64_t> numbers;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.numbers);
  }
};

/// Asks for the catalog.
struct GetCatalog {
  static constexpr Opcode kOpcode = Opcode::kGetCatalog;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

/// Reply to GetCatalog.
struct GetCatalogReply {
  static constexpr Opcode kOpcode = Opcode::kGetCatalogReply;
  Catalog catalog;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.catalog);
  }
};

/// Creates a table or an index. The commit manager answers when every live storage node has the table (R30, table
/// creation and drop). If a table with this name and definition exists, the reply names it, without the added fields
/// that the request lacks. kAlreadyExists: the table with this name has another definition. A new index has state
/// kBuilding (R29, index creation).
struct CreateTable {
  static constexpr Opcode kOpcode = Opcode::kCreateTable;
  std::string name;
  TableKind kind{};
  Schema schema;            ///< for an index: index_node_schema()
  IndexDefinition index{};  ///< set if the table is an index

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.name), v(m.kind), v(m.schema), v(m.index);
  }
};

/// Reply to CreateTable.
struct CreateTableReply {
  static constexpr Opcode kOpcode = Opcode::kCreateTableReply;
  TableInfo table;
  bool existed = false;  ///< whether the table existed before the request
  CatalogVersion catalog_version = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.table), v(m.existed), v(m.catalog_version);
  }
};

/// Reports that an index has entries for all records that existed before it. The index is kReady from now on (R29). A
/// repetition is harmless. kNoSuchTable: there is no such index.
struct FinishIndex {
  static constexpr Opcode kOpcode = Opcode::kFinishIndex;
  TableId index;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.index);
  }
};

/// Reply to FinishIndex.
struct FinishIndexReply {
  static constexpr Opcode kOpcode = Opcode::kFinishIndexReply;
  CatalogVersion catalog_version = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.catalog_version);
  }
};

/// Drops a table together with its indexes, or drops an index. kNoSuchTable: no table has the name, or the table with
/// this id has another name now; nothing is dropped.
struct DropTable {
  static constexpr Opcode kOpcode = Opcode::kDropTable;
  std::string name;
  /// The id of the table. If the table no longer exists, the commit manager answers DropTableReply, and does not drop
  /// another table that has the name now. 0: drop the table that has the name, with any id.
  TableId table{};
  /// Whether to drop the index only while it is being built. kConflict: the index is finished.
  bool unfinished = false;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.name), v(m.table), v(m.unfinished);
  }
};

/// Reply to DropTable.
struct DropTableReply {
  static constexpr Opcode kOpcode = Opcode::kDropTableReply;
  CatalogVersion catalog_version = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.catalog_version);
  }
};

/// Gives a table another name. The table keeps its id, records and indexes, so open transactions and scans continue.
/// The new name is visible to clients as soon as it is stored. The commit manager answers when every live storage node
/// has the new name, which storage nodes use in messages and statistics only.
///
/// kNoSuchTable: no table has the old name, or a table with another id has it. kAlreadyExists: a table or index has the
/// new name. kWrongTableKind: an index keeps its name. kInvalidArgument: the new name is the old one or no valid name.
struct RenameTable {
  static constexpr Opcode kOpcode = Opcode::kRenameTable;
  std::string name;
  std::string new_name;
  /// The id of the table. If the table has the new name already, the request is a repetition, and the commit manager
  /// answers RenameTableReply. 0: rename the table that has the name, with any id.
  TableId table{};

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.name), v(m.new_name), v(m.table);
  }
};

/// Reply to RenameTable.
struct RenameTableReply {
  static constexpr Opcode kOpcode = Opcode::kRenameTableReply;
  CatalogVersion catalog_version = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.catalog_version);
  }
};

/// Adds a nullable field at the end of a table's schema (decision 0027). The commit manager answers when every live
/// storage node knows the field, and shows it to clients then. If the table has an added field of this name and type,
/// the reply names it.
///
/// kNoSuchTable: the table does not exist. kWrongTableKind: it is an index. kAlreadyExists: another field has the name.
/// kInvalidArgument: the field is not nullable, or Schema::make() refuses the schema. kOverloaded: another field is
/// being added to the table.
struct AddField {
  static constexpr Opcode kOpcode = Opcode::kAddField;
  TableId table;
  Schema field;  ///< a schema with this field alone

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.table), v(m.field);
  }
};

/// Reply to AddField.
struct AddFieldReply {
  static constexpr Opcode kOpcode = Opcode::kAddFieldReply;
  bool existed = false;  ///< whether the table had the field before the request
  CatalogVersion catalog_version = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.existed), v(m.catalog_version);
  }
};

/// Ends the session. The client has completed all its transactions before.
struct CloseSession {
  static constexpr Opcode kOpcode = Opcode::kCloseSession;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

/// Reply to CloseSession.
struct CloseSessionReply {
  static constexpr Opcode kOpcode = Opcode::kCloseSessionReply;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

// ---- storage node ↔ commit manager --------------------------------------------------------------------------------

/// The first message of a storage node on a connection: registers a new process with empty memory, or returns after a
/// lost connection with its records (R10, cluster identity and incarnations).
///
/// kFenced: another incarnation has replaced this one, or an operator has accepted its loss. The process ends.
/// kWrongCluster: the history of the commit manager does not contain `known`. The storage node keeps its records and
/// registers again later. kUnavailable: the commit manager has restarted and waits for the reports of other storage
/// nodes. The storage node registers again later.
struct RegisterNode {
  static constexpr Opcode kOpcode = Opcode::kRegisterNode;
  std::string address;          ///< as NodeInfo::address
  std::string admin_address;    ///< as NodeInfo::admin_address
  uint64_t capacity_bytes = 0;  ///< memory for records and indexes
  Incarnation incarnation{};    ///< the incarnation that returns; 0: a new process
  /// A random number that each process draws once. A process that has not received its incarnation, because the
  /// reply was lost, registers again with this number and counts as the same start. 0: none was drawn.
  uint64_t start = 0;
  HistoryPoint known{};  ///< the newest history that the storage node has received from commit managers

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.address), v(m.admin_address), v(m.capacity_bytes), v(m.incarnation), v(m.start), v(m.known);
  }
};

/// Reply to RegisterNode. A storage node serves no request before it has this reply (R9, leases of storage nodes).
/// A storage node that returns replaces its catalog and its fences by these.
struct RegisterNodeReply {
  static constexpr Opcode kOpcode = Opcode::kRegisterNodeReply;
  NodeId node;
  Incarnation incarnation;
  uint64_t manager_epoch = 0;
  Catalog catalog;
  Publication publication;  ///< number 0: there is none in this epoch yet, and the storage node keeps its own (R11)
  FenceSet fences{};
  uint64_t lease_ns = 0;  ///< length of the lease, from the moment when the storage node sent its request
  /// Whether an earlier incarnation of this storage node owned shards, whose records are lost. The shards answer
  /// kUnavailable until AcceptLoss (R10).
  bool memory_lost = false;
  ClusterHistory history{};  ///< up to `manager_epoch`; the storage node checks it before it uses any other field

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.node), v(m.incarnation), v(m.manager_epoch), v(m.catalog), v(m.publication), v(m.fences), v(m.lease_ns);
    v(m.memory_lost), v(m.history);
  }
};

/// Renews the lease of a storage node (R9). The lease then runs for lease_ns from the moment when the storage node
/// sent this.
struct RenewNode {
  static constexpr Opcode kOpcode = Opcode::kRenewNode;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

/// Reply to RenewNode.
struct RenewNodeReply {
  static constexpr Opcode kOpcode = Opcode::kRenewNodeReply;
  uint64_t state = 0;  ///< the present ClusterHistory::state
  uint64_t log = 0;    ///< the present ClusterHistory::log

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.state), v(m.log);
  }
};

/// Tells a storage node to refuse all requests of these sessions. The storage node answers when each of its threads
/// knows the fences and has ended the batch that it was executing (R7, fence barrier).
struct Fence {
  static constexpr Opcode kOpcode = Opcode::kFence;
  FenceSet fences{};

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.fences);
  }
};

/// Reply to Fence.
struct FenceReply {
  static constexpr Opcode kOpcode = Opcode::kFenceReply;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

/// Tells a restarted storage node that an operator has accepted the loss of its records. It serves its shards from
/// now on, which are empty (R10).
struct AcceptLoss {
  static constexpr Opcode kOpcode = Opcode::kAcceptLoss;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

/// Reply to AcceptLoss.
struct AcceptLossReply {
  static constexpr Opcode kOpcode = Opcode::kAcceptLossReply;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

/// Sends a publication to a storage node, which keeps the newest one (R13, atomic publication). A commit that is not
/// flushed in the commit log yet counts as open in the publication. The storage node answers when each of its threads
/// knows the publication. It need not answer a publication that a newer one has overtaken.
struct Publish {
  static constexpr Opcode kOpcode = Opcode::kPublish;
  Publication publication;
  uint64_t state = 0;  ///< the present ClusterHistory::state
  uint64_t log = 0;    ///< the present ClusterHistory::log

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.publication), v(m.state), v(m.log);
  }
};

/// Reply to Publish. From now on the storage node names no intent that the publication covers (R5, intents before
/// answers).
struct PublishReply {
  static constexpr Opcode kOpcode = Opcode::kPublishReply;
  uint64_t epoch = 0;   ///< epoch of the publication
  uint64_t number = 0;  ///< number of the publication

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.epoch), v(m.number);
  }
};

/// Tells a storage node the definition of a table or index and the present shard map. The commit manager sends it when
/// it creates or renames a table, when it adds a field, and when the shard map changes. A message for a change of the
/// shard map names a table that every storage node has.
///
/// The storage node creates the table unless it exists (an existing table takes over the name and added fields only),
/// and adopts the shard map. It answers when each of its threads uses both, or with kError if it cannot create the
/// table.
struct InstallTable {
  static constexpr Opcode kOpcode = Opcode::kInstallTable;
  TableInfo table;
  ShardMap shards;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.table), v(m.shards);
  }
};

/// Reply to InstallTable.
struct InstallTableReply {
  static constexpr Opcode kOpcode = Opcode::kInstallTableReply;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

/// Tells a storage node that a table was dropped. It answers kNoSuchTable to requests for the table from now on.
struct RemoveTable {
  static constexpr Opcode kOpcode = Opcode::kRemoveTable;
  TableId table;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.table);
  }
};

/// Reply to RemoveTable.
struct RemoveTableReply {
  static constexpr Opcode kOpcode = Opcode::kRemoveTableReply;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

}  // namespace loam::wire
