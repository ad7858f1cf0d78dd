// Messages of the commit manager: with clients, and with storage nodes.
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

/// Registers a client process (R3), or goes on with its session on a new connection: then `resume` and `manager_epoch`
/// name it, and the connection that it had before is closed. kFenced if that session has ended; kWrongCluster if the
/// client names another cluster than the commit manager's. After resuming, the client sends what has no answer yet once
/// more, with the sequences that it had.
struct OpenSession {
  static constexpr Opcode kOpcode = Opcode::kOpenSession;
  std::string client_name;  ///< for operators: program and host
  SessionId resume{};       ///< 0: a new session
  uint64_t manager_epoch = 0;
  ClusterId cluster{};  ///< of the client's earlier sessions; zero: it had none

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.client_name), v(m.resume), v(m.manager_epoch), v(m.cluster);
  }
};

struct SessionOpened {
  static constexpr Opcode kOpcode = Opcode::kSessionOpened;
  SessionId session;
  uint64_t manager_epoch = 0;
  std::string admin_address;  ///< gRPC of the commit manager; empty if it has none
  Catalog catalog;
  /// A session of which the commit manager hears nothing for so long is fenced and recovered (R7, R8).
  uint64_t lease_ns = 0;
  ClusterId cluster{};

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.session), v(m.manager_epoch), v(m.admin_address), v(m.catalog), v(m.lease_ns), v(m.cluster);
  }
};

/// Keeps the session alive: every message of it does, this one when there is nothing else to say. It also names the
/// read-only snapshots that the client still holds (R14): those with numbers up to `newest` that it does not name are
/// released. Not kept in the window of answers: repeating it is harmless.
struct RenewSession {
  static constexpr Opcode kOpcode = Opcode::kRenewSession;
  uint64_t newest = 0;         ///< highest snapshot number that the client has received
  std::vector<uint64_t> held;  ///< ascending

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.newest), v(m.held);
  }
};

struct SessionRenewed {
  static constexpr Opcode kOpcode = Opcode::kSessionRenewed;
  CatalogVersion catalog_version = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.catalog_version);
  }
};

/// What became of transactions of a session that has ended (R4): asked by its client, under its next session. Outcomes
/// come from the commit log; they are kept for a time, not until they are asked for.
struct AskOutcomes {
  static constexpr Opcode kOpcode = Opcode::kAskOutcomes;
  std::vector<TransactionId> ids;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.ids);
  }
};

enum class Outcome : uint8_t {
  kForgotten = 1,  ///< not known any more, or never begun
  kPending = 2,    ///< its session is open, or the commit is not on the disk yet: ask again
  kCommitted = 3,
  kAborted = 4,
};

/// In the order of the ids.
struct Outcomes {
  static constexpr Opcode kOpcode = Opcode::kOutcomes;
  std::vector<Outcome> outcomes;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.outcomes);
  }
};

/// Begins `read_write` transactions, registers one shared snapshot if `read_only`, and one more if `upgradable`, and
/// draws an id for each number in `upgrades`: a registered upgradable snapshot, whose transaction writes from now on. A
/// client gathers the begins of its fibers into one Begin; none joins after it was sent (R12).
struct Begin {
  static constexpr Opcode kOpcode = Opcode::kBegin;
  uint32_t read_write = 0;
  bool read_only = false;
  bool upgradable = false;
  std::vector<uint64_t> upgrades{};

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.read_write), v(m.read_only), v(m.upgradable), v(m.upgrades);
  }
};

/// Most ids one Begin may ask for.
inline constexpr uint32_t kMaxBegins = 4096;

/// The ids are first_id … first_id + read_write + upgrades − 1, those of `upgrades` last and in their order; all are
/// higher than every version that their snapshot sees. The snapshot stays open for each id until it is completed, and
/// under `snapshot_number` and `upgradable_number` (0 unless asked for) until they are released. An upgradable snapshot
/// counts as that of a read-write transaction from its beginning (R20).
struct Begun {
  static constexpr Opcode kOpcode = Opcode::kBegun;
  TransactionId first_id;
  uint64_t snapshot_number = 0;
  uint64_t upgradable_number = 0;
  Snapshot snapshot;
  Version seen_by_all;  ///< every open and later snapshot sees versions up to here (R13, R27)
  /// A loss of power takes back no commit up to here that the snapshot sees (R11).
  Version durable;
  CatalogVersion catalog_version = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.first_id), v(m.snapshot_number), v(m.upgradable_number), v(m.snapshot), v(m.seen_by_all), v(m.durable);
    v(m.catalog_version);
  }
};

/// Ends transactions of this session (R1, R2). The commit manager decides: an id that it accepts as committed is in its
/// commit log, and later snapshots see it, before the answer is sent. Repeating it is harmless.
struct Complete {
  static constexpr Opcode kOpcode = Opcode::kComplete;
  struct Outcome {
    TransactionId id;
    bool committed = false;

    template <class Self, class V>
    static void fields(Self& m, V& v) {
      v(m.id), v(m.committed);
    }
  };
  std::vector<Outcome> outcomes;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.outcomes);
  }
};

struct Completed {
  static constexpr Opcode kOpcode = Opcode::kCompleted;
  /// Those that cannot be committed, because records that they may have written were lost since they began, and the
  /// loss was accepted (R9). They stay open until the client has undone them and completes them as aborted.
  std::vector<TransactionId> refused;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.refused);
  }
};

/// Registered snapshots, read-only or upgradable, that are not used any more. One way.
struct ReleaseSnapshots {
  static constexpr Opcode kOpcode = Opcode::kReleaseSnapshots;
  std::vector<uint64_t> numbers;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.numbers);
  }
};

struct GetCatalog {
  static constexpr Opcode kOpcode = Opcode::kGetCatalog;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

struct CatalogReply {
  static constexpr Opcode kOpcode = Opcode::kCatalog;
  Catalog catalog;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.catalog);
  }
};

/// Acknowledged when every live node has the table (R30). The same name and definition again gives the same table;
/// another definition is kAlreadyExists. An index is created in state kBuilding, with the schema of index_node_schema()
/// (R29).
struct CreateTable {
  static constexpr Opcode kOpcode = Opcode::kCreateTable;
  std::string name;
  TableKind kind{};
  Schema schema;
  IndexDefinition index{};

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.name), v(m.kind), v(m.schema), v(m.index);
  }
};

struct TableCreated {
  static constexpr Opcode kOpcode = Opcode::kTableCreated;
  TableInfo table;
  bool existed = false;
  CatalogVersion catalog_version = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.table), v(m.existed), v(m.catalog_version);
  }
};

/// An index has entries of all records that were there before it (R29): it is kReady from now on. Repeating it is
/// harmless. kNoSuchTable: no such index, or not any more.
struct FinishIndex {
  static constexpr Opcode kOpcode = Opcode::kFinishIndex;
  TableId index;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.index);
  }
};

struct IndexFinished {
  static constexpr Opcode kOpcode = Opcode::kIndexFinished;
  CatalogVersion catalog_version = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.catalog_version);
  }
};

/// Of a table, its indexes go with it.
struct DropTable {
  static constexpr Opcode kOpcode = Opcode::kDropTable;
  std::string name;
  /// The table to be dropped. If it is gone, the answer is TableDropped, and another table that has its name by now
  /// stays. 0: any table that has the name.
  TableId table{};
  /// Only an index that is still being built: kConflict for a finished one.
  bool unfinished = false;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.name), v(m.table), v(m.unfinished);
  }
};

struct TableDropped {
  static constexpr Opcode kOpcode = Opcode::kTableDropped;
  CatalogVersion catalog_version = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.catalog_version);
  }
};

struct CloseSession {
  static constexpr Opcode kOpcode = Opcode::kCloseSession;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

struct SessionClosed {
  static constexpr Opcode kOpcode = Opcode::kSessionClosed;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

// ---- storage node ↔ commit manager --------------------------------------------------------------------------------

/// A storage node's first message on a connection: it has started, with empty memory (R10), or has lost its connection
/// and comes back with the memory that it had; then `incarnation` names it, and `known` says what it was told last.
/// kFenced: that incarnation has been replaced, or its loss accepted; the process is of no more use and ends.
/// kWrongCluster: the commit manager's history does not contain what the node was told; the node keeps its records and
/// tries again. kUnavailable: the commit manager has been started anew and waits for the reports of other nodes; the
/// node tries again.
struct RegisterNode {
  static constexpr Opcode kOpcode = Opcode::kRegisterNode;
  std::string address;
  std::string admin_address;
  uint64_t capacity_bytes = 0;
  Incarnation incarnation{};  ///< 0: a new start
  /// Drawn at random once in each process: who has not heard its incarnation, because the answer was lost, registers
  /// again as the same start, not as another. 0: none was drawn.
  uint64_t start = 0;
  KnownHistory known{};

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.address), v(m.admin_address), v(m.capacity_bytes), v(m.incarnation), v(m.start), v(m.known);
  }
};

/// The node serves nothing before it has this: who it is, the catalog, the fences and the first publication (R9).
/// A node that comes back takes catalog and fences as they are here. Its lease runs from the moment when it sent its
/// request.
struct NodeRegistered {
  static constexpr Opcode kOpcode = Opcode::kNodeRegistered;
  NodeId node;
  Incarnation incarnation;
  uint64_t manager_epoch = 0;
  Catalog catalog;
  Publication publication;  ///< number 0: none yet in this epoch; the node keeps what it has (R11)
  FenceSet fences{};
  uint64_t lease_ns = 0;
  /// An earlier incarnation of this node had shards, and their records are lost: they answer kUnavailable until
  /// AcceptLoss (R10).
  bool memory_lost = false;
  ClusterHistory history{};  ///< up to `manager_epoch`; the node takes nothing of this message unless it accepts that

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.node), v(m.incarnation), v(m.manager_epoch), v(m.catalog), v(m.publication), v(m.fences), v(m.lease_ns);
    v(m.memory_lost), v(m.history);
  }
};

/// Renews the node's lease (R9), which then runs for lease_ns from the moment when this was sent.
struct RenewNode {
  static constexpr Opcode kOpcode = Opcode::kRenewNode;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

struct NodeRenewed {
  static constexpr Opcode kOpcode = Opcode::kNodeRenewed;
  uint64_t state = 0;  ///< ClusterHistory::state and ClusterHistory::log as they are now
  uint64_t log = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.state), v(m.log);
  }
};

/// Requests of these sessions are refused from now on. Answered when every thread of the node has seen it and has ended
/// the batch that it was in (R7).
struct Fence {
  static constexpr Opcode kOpcode = Opcode::kFence;
  FenceSet fences{};

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.fences);
  }
};

struct FenceInstalled {
  static constexpr Opcode kOpcode = Opcode::kFenceInstalled;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

/// An operator has accepted that the records of this node's shards are lost: it serves them, empty (R10).
struct AcceptLoss {
  static constexpr Opcode kOpcode = Opcode::kAcceptLoss;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

struct LossAccepted {
  static constexpr Opcode kOpcode = Opcode::kLossAccepted;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

/// Open snapshots and what later ones see, in one piece (R13). A node keeps the newest one. A commit whose record in
/// the commit log is not on the disk yet counts as open in it. Answered when every thread of the node has seen it; a
/// publication that was overtaken by a newer one need not be answered.
struct Publish {
  static constexpr Opcode kOpcode = Opcode::kPublish;
  Publication publication;
  uint64_t state = 0;  ///< ClusterHistory::state and ClusterHistory::log as they are now
  uint64_t log = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.publication), v(m.state), v(m.log);
  }
};

/// The node names no intent any more that the publication covers (R5).
struct PublicationInstalled {
  static constexpr Opcode kOpcode = Opcode::kPublicationInstalled;
  uint64_t epoch = 0;
  uint64_t number = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.epoch), v(m.number);
  }
};

/// The catalog has changed: a table was created or the shard map changed. Answered when every thread of the node knows.
struct InstallTable {
  static constexpr Opcode kOpcode = Opcode::kInstallTable;
  TableInfo table;
  ShardMap shards;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.table), v(m.shards);
  }
};

struct TableInstalled {
  static constexpr Opcode kOpcode = Opcode::kTableInstalled;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

/// The table was dropped; requests for it get kNoSuchTable from now on.
struct RemoveTable {
  static constexpr Opcode kOpcode = Opcode::kRemoveTable;
  TableId table;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.table);
  }
};

struct TableRemoved {
  static constexpr Opcode kOpcode = Opcode::kTableRemoved;

  template <class Self, class V>
  static void fields(Self&, V&) {}
};

}  // namespace loam::wire
