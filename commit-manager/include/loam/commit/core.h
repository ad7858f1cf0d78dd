// The state machine of the commit manager. It does no I/O: a driver passes in messages and the time, and sends the
// messages that come out.
//
// Two drivers run it: the server (src/server), which has sockets and a clock and also serves `loam dev`, and the
// simulator. src/core implements sessions, transactions, snapshots, publications, fencing and recovery. src/catalog
// implements tables, storage nodes and the shard map.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <loam/commit/statistics.h>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/wire/catalog.h"
#include "common/wire/fence_set.h"
#include "common/wire/identity.h"
#include "common/wire/manager.h"
#include "common/wire/reply_window.h"

namespace loam::latency {
class BatchTimer;
}

namespace loam::commit {

/// The number of one connection of a client or storage node. The driver never uses a number twice.
using PeerId = StrongId<struct PeerIdTag>;

/// Upper bound on sessions that are open, or have ended and are not recovered yet. A client process has one session.
inline constexpr size_t kMaxSessions = 4'096;
/// Upper bound on storage nodes of a cluster, counted by address. Dead storage nodes count.
inline constexpr size_t kMaxNodes = 256;
/// Upper bound on open read-write transactions of one session. It exceeds the fibers of a usual client process.
inline constexpr size_t kMaxOpenPerSession = 8'192;
/// Upper bound on registered snapshots, read-only and upgradable, that one session holds.
inline constexpr size_t kMaxSnapshotsPerSession = 4'096;
/// Upper bound on the memory, in bytes, for the lists of open ids in all open snapshots.
inline constexpr size_t kMaxSnapshotBytes = 256u << 20;
/// Upper bound on the bytes of one request. The largest request is a CreateTable with 1,024 long field names.
inline constexpr size_t kMaxRequestBytes = 1u << 20;
/// Upper bound on the bytes of the name that a client gives in OpenSession.
inline constexpr size_t kMaxClientNameBytes = 256;
/// Upper bound on the bytes of a storage node's address.
inline constexpr size_t kMaxAddressBytes = 256;
/// Upper bound on the refused storage nodes that are listed for operators. Beyond it, the oldest one is dropped.
inline constexpr size_t kMaxRefusedNodes = 32;
/// Upper bound on tables of a cluster. Indexes and Loam's own tables count.
inline constexpr size_t kMaxTables = 65'536;
/// Upper bound on the bytes of the encoded tables. With the shard map added, the catalog still fits into one message
/// of every transport.
inline constexpr size_t kMaxCatalogBytes = 8u << 20;
/// Upper bound on deferred replies, which wait until a state is stored. Beyond it, catalog changes get kOverloaded.
inline constexpr size_t kMaxDeferredReplies = 16'384;
/// Upper bound on the bytes of all deferred replies. Beyond it, catalog changes get kOverloaded.
inline constexpr size_t kMaxDeferredReplyBytes = 64u << 20;
/// Upper bound on creations and drops of tables that wait for storage nodes.
inline constexpr size_t kMaxPendingChanges = 1'024;
/// Upper bound on the bytes of open snapshots that one publication lists exactly. Its floor covers the other
/// snapshots (R13, atomic publication).
inline constexpr size_t kMaxPublicationBytes = 256u << 10;

/// Number of orderly closed sessions after which the commit manager sends a fence for them. Storage nodes keep the
/// reply windows of such sessions until a fence names the sessions. No recovery waits for this fence.
inline constexpr size_t kMaxClosedUnfenced = 64;
/// Time after which the commit manager sends such a fence for fewer sessions, counted from the first of them.
inline constexpr uint64_t kClosedUnfencedNs = 1'000'000'000;
/// Number of orderly closed sessions after which a sweep of the indexes is due (R31, structure changes of the
/// Bd-tree). A session that is closed in order hardly ever leaves a tree node outside of its tree.
inline constexpr uint64_t kSweepAfterClosedSessions = 1'024;
/// Upper bound on commits that wait for the commit log: not written yet, or written and not flushed. Beyond it,
/// begins of transactions that may write get kOverloaded, so that the load waits at the clients.
inline constexpr size_t kMaxUnflushedCommits = 1'048'576;
/// Upper bound on queued begins, which wait until the disk stores a higher bound of ids. Further begins get
/// kOverloaded. The bound limits memory to 2 MiB: 512 clients with full windows (wire::kManagerReplyWindow).
inline constexpr size_t kMaxQueuedBegins = 65'536;
/// Upper bound on the memory, in bytes, for the large replies in the reply windows of all sessions (R3, idempotent
/// requests within a session). Two sessions can keep their largest replies. A request whose reply would not fit gets
/// kOverloaded before it is executed.
inline constexpr size_t kMaxRetainedReplyBytes = 2 * wire::kManagerReplyWindow.large_bytes;
/// Time that a client is advised to wait after kOverloaded.
inline constexpr uint64_t kRetryOverloadedNs = 10'000'000;
/// Time that a client is advised to wait after kUnavailable, while the cluster starts or the commit manager recovers.
inline constexpr uint64_t kRetryUnavailableNs = 50'000'000;

/// Settings of the state machine, which differ between deployments and tests. The defaults are the limits above.
struct CoreOptions {
  /// First epoch of a new cluster. Each start of the commit manager is an epoch (R11, commit log and restart of the
  /// commit manager), which names snapshots and publications. After a restart the epoch is the stored one plus 1, and
  /// this option is ignored.
  uint64_t epoch = 1;
  /// First transaction id of a new cluster. After a restart ids continue above the stored bound.
  TransactionId first_transaction{1};
  /// First session number of a new cluster. After a restart numbers continue above the stored bound.
  SessionId first_session{1};
  /// Number of storage nodes that have to register before the shards are dealt out. Shards do not move afterwards.
  /// Until then OpenSession gets kUnavailable. 0: the first node gets all shards, and no session waits for it.
  uint32_t initial_nodes = 1;
  /// Delay from a change of the open snapshots or ids to the publication that tells storage nodes of it (R13).
  uint64_t publish_interval_ns = 10'000'000;
  /// Age from which a publication lists a snapshot exactly. Younger snapshots share the floor (R13).
  uint64_t young_ns = 100'000'000;
  /// Lease of a session. A session that stays silent for the lease and a short allowance is fenced and recovered (R8,
  /// completion by the owner, recovery after the fence).
  uint64_t client_lease_ns = 2'000'000'000;
  /// Lease of a storage node (R9, leases of storage nodes), which RenewNode renews. The commit manager counts it as
  /// held for an eighth longer.
  uint64_t node_lease_ns = 2'000'000'000;
  /// Age of an open transaction at which its whole session ends and is fenced (R8). The commit manager notices the
  /// age at most a sixteenth of it late.
  uint64_t max_transaction_age_ns = 60'000'000'000;
  /// Minimum time for which the commit log keeps a commit, for clients that lost the reply (R4, outcomes from the
  /// commit log). Only time in which the commit manager runs counts.
  uint64_t outcome_keep_ns = 600'000'000'000;
  /// Number of ids that one stored state reserves (R11). The next ids are reserved when half of them are left, so a
  /// stalled disk stops begins only when that half is used up.
  uint64_t ids_ahead = 1'000'000;
  /// A limit, which the constant of its default describes.
  /// @{
  uint64_t sweep_after_closed_sessions = kSweepAfterClosedSessions;
  size_t max_unflushed_commits = kMaxUnflushedCommits;
  size_t max_queued_begins = kMaxQueuedBegins;
  size_t max_deferred_replies = kMaxDeferredReplies;
  size_t max_deferred_reply_bytes = kMaxDeferredReplyBytes;
  size_t max_retained_reply_bytes = kMaxRetainedReplyBytes;
  size_t max_sessions = kMaxSessions;
  size_t max_open_per_session = kMaxOpenPerSession;
  size_t max_open = kMaxOpenIds;
  size_t max_snapshots_per_session = kMaxSnapshotsPerSession;
  size_t max_snapshot_bytes = kMaxSnapshotBytes;
  size_t max_tables = kMaxTables;
  size_t max_catalog_bytes = kMaxCatalogBytes;
  size_t max_publication_bytes = kMaxPublicationBytes;
  /// @}
};

/// Sends the messages of the core to its peers. The driver implements it. The core calls it only while the driver
/// calls the core, on the same thread. An implementation must not call the core.
class Outbox {
 public:
  virtual ~Outbox() = default;
  /// Sends one message. The core owns the bytes; the call copies them before it returns. False: the send queue of the
  /// peer is full. The core then skips a publication, which the next one replaces, and closes the connection for any
  /// other message.
  virtual bool send(PeerId peer, Bytes message) = 0;
  /// Closes the connection after the messages that were sent before. The core has already dropped the peer, so the
  /// driver need not call Core::on_peer_disconnected().
  virtual void close(PeerId peer, const Status& why) = 0;
  /// Writes a log line for operators, for example that a session or a storage node came or went, as loam::log() does.
  virtual void log(const LogLine& line, std::source_location where = std::source_location::current()) = 0;
};

/// Stores the state that survives a restart of the commit manager (R11): one block of bytes, opaque to the driver and
/// replaced as a whole. The driver implements it. The core calls it only while the driver calls the core. The first
/// Core::on_timer() stores the first state of an epoch.
class StateStore {
 public:
  virtual ~StateStore() = default;
  /// Starts to replace the stored state, and copies the bytes before it returns. Returns the outcome if it is known
  /// at once, and nothing otherwise. In the second case the driver passes the outcome to Core::on_state_stored()
  /// later, and the core starts no other store before that. The call must not block in a driver that serves leases.
  /// After an error the core sends nothing more (Core::durable_status()), and the driver stops the process.
  virtual std::optional<Status> store(Bytes state) = 0;
};

/// A range of transaction ids.
struct IdRange {
  TransactionId first;  ///< included
  TransactionId last;   ///< included

  /// True for the same first and last id.
  bool operator==(const IdRange&) const = default;
};

/// The content of a commit log.
struct CommitLogContents {
  /// The ids of committed transactions, as ranges that ascend, do not touch and do not overlap.
  std::vector<IdRange> committed;
  /// The log may have dropped outcomes of ids up to this one. An id up to here that `committed` lacks may be
  /// committed.
  TransactionId truncated_up_to;
  /// Number of commits appended so far, over all epochs. Commits that were dropped since then count.
  uint64_t end = 0;

  /// True if all members are equal.
  bool operator==(const CommitLogContents&) const = default;
};

/// Appends the ids of committed transactions to the commit log (R11). commit-manager/src/log implements it for the
/// program, and the simulator and tests have their own. The core calls it only while the driver calls the core.
///
/// The position of a commit is its number in the log, counted from 1 over all epochs.
class CommitLog {
 public:
  virtual ~CommitLog() = default;
  /// Appends commits as one batch, at the next positions. Never blocks, and reports no error. The driver calls
  /// Core::on_log_progress() when the batch is written and again when it is on the disk, or Core::on_log_failed().
  virtual void append(std::span<const TransactionId> ids) = 0;
  /// Starts a rewrite of the log: the implementation writes a new file that begins with `needed`, and drops the old
  /// one. `needed` names all commits so far that have to be kept, including appended ones that are not written yet.
  /// Never blocks; the rewrite runs in the background.
  virtual void rewrite(CommitLogContents needed) = 0;
  /// Bytes appended since the last rewrite. The core starts the next rewrite by this number.
  virtual uint64_t bytes() const = 0;
};

/// The positions up to which the commit log is written and flushed. Both never fall.
struct CommitLogProgress {
  /// Commits up to this position are accepted: the core answers them and shows them to snapshots. With `--commit-log
  /// sync` they are on the disk; with `os` they survive the death of the process.
  uint64_t accepted = 0;
  /// Commits up to this position are on the disk. Never above `accepted`.
  uint64_t flushed = 0;
};

/// The state of a storage node, for administration.
struct NodeStatus {
  wire::NodeInfo info;          ///< id, addresses, incarnation and state
  bool live = false;            ///< info.state is kLive
  bool memory_lost = false;     ///< a new process runs, and no operator has accepted the loss of the records (R10)
  uint32_t shards = 0;          ///< number of virtual shards that it owns
  uint64_t capacity_bytes = 0;  ///< memory for records, as the node has registered it
};

/// An open transaction whose session has ended. Recovery undoes it (R8).
struct Orphan {
  TransactionId id;   ///< the transaction
  SessionId session;  ///< the session that began it
};

/// A unit of work for the recoverer: one ended session, at the storage nodes that have acknowledged its fence (R8).
/// After a restart of the commit manager one task stands for all sessions of earlier epochs (R11).
///
/// The recoverer asks each of `nodes` for the intents of the session and undoes those that must_undo() selects: index
/// changes first, then the versions of each record in falling order of ids. It reports by Core::complete_recovery().
struct RecoveryTask {
  SessionId session;  ///< 0: all sessions of earlier epochs
  /// In a task for one session: its transactions that were not accepted as committed, ascending. The recoverer leaves
  /// intents of other transactions alone. Null in a task for all earlier sessions.
  std::shared_ptr<const std::vector<TransactionId>> aborted;
  /// In a task for all earlier sessions: the committed transactions of earlier epochs. The recoverer undoes the
  /// intents of all other ids up to `last_id_of_earlier_epochs`. Null in a task for one session.
  std::shared_ptr<const std::vector<IdRange>> committed;
  TransactionId last_id_of_earlier_epochs;  ///< in a task for all earlier sessions
  std::vector<NodeId> nodes;                ///< where the recoverer undoes the intents

  /// True if recovery undoes the intents of this transaction.
  bool must_undo(TransactionId id) const;
};

/// Sessions that are fenced everywhere: every storage node has acknowledged their fence or holds no lease (R7, fence
/// barrier; R9). They can write nothing any more.
struct FencedSessions {
  wire::FenceSet set;   ///< the sessions, as storage nodes receive them
  uint64_t lost = 0;    ///< sessions in `set` that ended since the start without an orderly close
  uint64_t closed = 0;  ///< sessions in `set` that were closed since the start without open transactions
};

/// The state of a session that is open, or that has ended and is not recovered yet. For administration.
struct SessionStatus {
  /// The phases of a session's life. Each leads to the next one.
  enum class State : uint8_t {
    kOpen,        ///< its client may use it
    kFencing,     ///< ended; at least one storage node with a lease has not acknowledged the fence
    kRecovering,  ///< fenced everywhere; the recoverer undoes its transactions
  };
  SessionId id;                ///< the session
  std::string name;            ///< the name that the client gave in OpenSession
  State state = State::kOpen;  ///< the phase that it is in
  bool connected = false;      ///< the client has a connection now
  PeerId peer;                 ///< its connection, if it has one
  bool recoverer = false;      ///< it is the session of the commit manager's own recoverer
  uint64_t silent_ns = 0;      ///< time since the last message of the client, or since the end of the session
  uint64_t open = 0;           ///< open transactions
  std::string end;             ///< why the session ended; empty while it is open
};

/// Returns "open", "fencing" or "recovering".
std::string_view to_string(SessionStatus::State state);

/// A transaction or registered snapshot that is open, for administration.
struct TransactionStatus {
  /// How the transaction was begun.
  enum class Kind : uint8_t {
    kReadWrite,   ///< with an id
    kUpgradable,  ///< without an id, which it may draw; it may then be listed twice
    kReadOnly,    ///< without an id
  };
  /// What it waits for.
  enum class State : uint8_t {
    kOpen,        ///< its client may read and write
    kCommitting,  ///< its commit waits for the commit log
    kOrphaned,    ///< its session has ended; recovery undoes its writes and releases its snapshot
  };
  TransactionId id;              ///< 0: the transaction has no id
  SessionId session;             ///< the session that holds it
  PeerId peer;                   ///< the connection of its client; 0: it has none
  std::string client;            ///< the name that the client gave in OpenSession
  Kind kind = Kind::kReadOnly;   ///< how it was begun
  State state = State::kOpen;    ///< what it waits for
  Version snapshot;              ///< the id up to which its snapshot sees all versions
  uint64_t snapshot_age_ns = 0;  ///< age of its snapshot, which transactions that begin together share
  uint64_t newer_ids = 0;        ///< ids given out since its snapshot; versions that these replaced stay in memory
};

/// The state machine of the commit manager: sessions, transaction ids, snapshots, publications, catalog, fencing.
///
/// Owner: a driver, which also owns the outbox, the state store and the commit log. Threads: one. The core never
/// blocks, does no I/O and reads no clock: `now_ns` comes from a monotonic clock of the driver. Begins and
/// completions allocate nothing once the structures have reached their working size. Bytes from peers never cause an
/// assertion failure.
///
/// Invariants:
/// 1. Transaction ids are dense and rise over all sessions. Each id belongs to one session (R12, ids at begin).
/// 2. A snapshot sees exactly the ids that were finished (committed and visible, or aborted) when its Begin was
///    executed. So a later snapshot sees all that an earlier one sees, and a snapshot sees every transaction that was
///    completed before its Begin (strong snapshot isolation).
/// 3. Only the session that began a transaction completes it (R8). The outcome of a transaction never changes.
/// 4. A publication covers every open snapshot. Every later snapshot sees everything that the publication says it
///    sees (R13).
/// 5. A table is in the catalog of clients only while every live storage node has it (R30, table creation and drop).
/// 6. The recoverer gets the intents of an ended session at a storage node only after this node has acknowledged
///    the fence of the session (R7, R8). The transactions are finished as aborted when recovery has undone them at
///    every node whose loss is not accepted.
/// 7. The core sends no message before the state on which the message depends is stored (R11). It answers a change
///    of tables, storage nodes or shards when the change is stored. It gives out ids and session numbers below stored
///    bounds. It shows clients and storage nodes the stored catalog. It answers a commit, and lets snapshots see it,
///    when the commit log has accepted it. All other work continues while the disk is busy.
class Core {
 public:
  /// Continues from `state`, the bytes that `state_store` stored last and that check_state() has accepted; empty
  /// bytes start a new cluster. The first on_timer() stores the new epoch. Before that is stored, no session is
  /// opened and no storage node is registered.
  ///
  /// Without `state_store` nothing survives and `state` is ignored; `loam dev` and tests use this. `log` is the
  /// commit log and `log_contents` its content at the start. Without `log` commits are accepted at once and end with
  /// the process.
  Core(const CoreOptions& options, Outbox& outbox, StateStore* state_store = nullptr, Bytes state = {},
       CommitLog* log = nullptr, const CommitLogContents& log_contents = {});
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Returns ok if a core can start from these bytes; otherwise kMalformed or kUnsupportedVersion with the reason.
  static Status check_state(Bytes state);
  /// Takes the outcome of the store that is under way, and sends the replies that waited for it. Does nothing if no
  /// store is under way.
  void on_state_stored(const Status& outcome);
  /// Takes the new positions of the commit log, lets snapshots see the accepted commits, and answers them.
  void on_log_progress(const CommitLogProgress& progress);
  /// Takes a permanent failure of the commit log. The core then behaves as after a failed store.
  void on_log_failed(const Status& why);
  /// Returns the first error of a store or of the commit log; ok if there was none. After an error the core executes
  /// and sends nothing, and the driver has to stop the process.
  Status durable_status() const;

  /// Sets the timer that learns of the requests of each batch and of late answers. The driver owns it. Null, the
  /// default: none.
  void set_timer(latency::BatchTimer* timer);

  /// Sets the gRPC address that clients are told. The default, empty, means that there is none.
  void set_admin_address(std::string address);

  /// Executes all messages of one frame of a peer, in order.
  void on_messages(PeerId peer, std::span<const Bytes> messages, uint64_t now_ns);

  /// Drops a connection that has ended. Sessions and storage nodes outlive it: a client resumes its session over
  /// another connection, and a storage node registers again. Otherwise their leases run out.
  void on_peer_disconnected(PeerId peer);

  /// Does the work that is due by the clock: ends leases and old transactions, sends publications, rewrites the log.
  void on_timer(uint64_t now_ns);
  /// Returns the time at which on_timer() has work; UINT64_MAX if it has none.
  uint64_t next_deadline_ns() const;

  /// Creates a table for an administrator, as a client's CreateTable does. Calls `done` once, within this call or a
  /// later one, unless the core is destroyed before.
  void create_table(const wire::CreateTable& request, std::function<void(Result<wire::CreateTableReply>)> done);
  /// Drops a table for an administrator, as a client's DropTable does. Calls `done` as create_table() does.
  void drop_table(const wire::DropTable& request, std::function<void(Result<wire::DropTableReply>)> done);
  /// Renames a table for an administrator, as a client's RenameTable does. Calls `done` as create_table() does.
  void rename_table(const wire::RenameTable& request, std::function<void(Result<wire::RenameTableReply>)> done);

  /// Accepts, for an operator, the loss of the records of this storage node (R9; R10, cluster identity and
  /// incarnations). The node serves its shards, empty, as soon as the leases of its earlier incarnations are over.
  /// Calls `done` as create_table() does. kInvalidArgument: the node does not exist or has lost nothing.
  /// kUnavailable: a new process of the node has to register first. kUnknownOutcome: the node became unreachable
  /// meanwhile.
  void accept_loss(NodeId node, std::function<void(Status)> done);

  /// Ends a session for an operator, as if its lease had run out: its client gets kFenced, and recovery rolls its open
  /// transactions back. kNotFound: no session of a client with this id is open.
  Status end_session(SessionId id);

  /// Opens a session for the commit manager's own recoverer, with which it attaches to storage nodes. The session has
  /// no lease and no connection. The recoverer's previous session is fenced like that of a dead client. Returns
  /// SessionId(0) while no session number below the stored bound is left; the caller asks again.
  SessionId open_recoverer_session(uint64_t now_ns);
  /// Returns at most `max` tasks for the recoverer. A storage node is part of a session's task as soon as it has
  /// acknowledged the fence. A task is returned again until complete_recovery() reports it. After a restart there is
  /// one task for all earlier sessions. The core returns it when every storage node with shards is registered and has
  /// acknowledged the fence of those sessions, and no node with lost records waits for the acceptance of the loss.
  std::vector<RecoveryTask> recovery_tasks(size_t max) const;
  /// Takes the recoverer's report that the task is done at the nodes of the task. Nodes whose process has started
  /// anew since then do not count.
  void complete_recovery(const RecoveryTask& task, uint64_t now_ns);
  /// Returns the sessions whose orphaned tree nodes a sweep may remove; null if no sweep is due (R31). A sweep is due
  /// if an index exists and, since the last complete_sweep(), one session was lost or
  /// CoreOptions::sweep_after_closed_sessions were closed in order. Valid until the next call of the core.
  const FencedSessions* sweep_due() const;
  /// Takes the recoverer's report that a sweep has removed the orphaned tree nodes of these sessions.
  void complete_sweep(const FencedSessions& sessions);
  /// Returns the stored catalog for the recoverer: storage nodes with incarnations, shard map, and all tables that
  /// storage nodes may have. Recovery counts intents in a dropped table as undone (R30). A restart may forget a drop
  /// that is not stored, so recovery must not know of such a drop.
  wire::Catalog catalog_for_recovery() const;

  /// Returns the stored catalog, as clients see it.
  wire::Catalog catalog() const;
  /// Returns all storage nodes, dead ones included.
  std::vector<NodeStatus> nodes() const;
  /// Returns the open transactions of ended sessions, ascending.
  std::vector<Orphan> orphans() const;
  /// Returns the open sessions, the recoverer's, and ended ones that are not recovered yet, ascending.
  std::vector<SessionStatus> sessions() const;
  /// Returns at most `max` open transactions and registered snapshots, those with the oldest snapshots first.
  std::vector<TransactionStatus> oldest_transactions(size_t max) const;
  /// Returns the outcome of a transaction, as GetOutcomes tells it to a client (R4).
  wire::Outcome outcome(TransactionId id) const;
  /// Returns the id of the cluster (R10).
  wire::ClusterId cluster() const;
  /// Returns a copy of all counters and levels.
  Statistics statistics() const;
  /// Returns true when sessions and begins are served: the shard map is dealt out, stored, and known to every live
  /// node; earlier epochs are recovered; and the state of this commit manager is known to be the newest of its
  /// cluster.
  bool ready() const;

  /// Recounts everything and asserts that the invariants hold. Slow: the whole-structure tier of the assertions.
  void check_invariants() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::commit
