// The commit manager without I/O: messages in, messages out, time passed in.
//
// Three drivers run it: the server (src/server) with sockets and a clock, `loam dev` through the same server, and the
// simulator. What it decides is in src/core (sessions, transactions, snapshots, publications) and src/catalog (tables,
// nodes, shard map).
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
#include "common/base/status.h"
#include "common/wire/catalog.h"
#include "common/wire/fence_set.h"
#include "common/wire/identity.h"
#include "common/wire/manager.h"
#include "common/wire/reply_window.h"

namespace loam::commit {

/// One connection of a client or storage node. The driver numbers them and uses no number twice.
using PeerId = StrongId<struct PeerIdTag>;

/// Sessions that are open, or ended and not yet recovered, at one time; one for each client process.
inline constexpr size_t kMaxSessions = 4'096;
/// Storage nodes of a cluster, by their addresses, the dead ones included.
inline constexpr size_t kMaxNodes = 256;
/// Open read-write transactions of one session: the fibers of a process, generously.
inline constexpr size_t kMaxOpenPerSession = 8'192;
/// Read-only snapshots that one session holds at one time.
inline constexpr size_t kMaxSnapshotsPerSession = 4'096;
/// Memory for the open ids in all open snapshots.
inline constexpr size_t kMaxSnapshotBytes = 256u << 20;
/// Bytes of one request. The largest is a CreateTable with 1,024 long field names.
inline constexpr size_t kMaxRequestBytes = 1u << 20;
/// Bytes of the name that a client gives itself, and of a node's address.
inline constexpr size_t kMaxClientNameBytes = 256;
inline constexpr size_t kMaxAddressBytes = 256;
/// Storage nodes that were refused and are listed for operators; beyond, the oldest are forgotten.
inline constexpr size_t kMaxRefusedNodes = 32;
/// Tables of a cluster, the system's included.
inline constexpr size_t kMaxTables = 65'536;
/// Bytes of the encoded tables: with the shard map, the catalog stays a message that every transport takes.
inline constexpr size_t kMaxCatalogBytes = 8u << 20;
/// Answers that wait for the disk at one time, and bytes of them. Beyond it, changes of the catalog get kOverloaded.
inline constexpr size_t kMaxWaitingAnswers = 16'384;
inline constexpr size_t kMaxWaitingAnswerBytes = 64u << 20;
/// Creates and drops that wait for storage nodes at one time.
inline constexpr size_t kMaxPendingChanges = 1'024;
/// Bytes of open snapshots that one publication lists exactly; the rest is covered by its floor (R13).
inline constexpr size_t kMaxPublicationBytes = 256u << 10;

/// Storage nodes hold the reply windows of sessions that were closed in order until a fence names these sessions. The
/// commit manager sends one when there are this many of them, or when the oldest has been closed for this long. No
/// recovery waits for that fence.
inline constexpr size_t kMaxClosedUnfenced = 64;
inline constexpr uint64_t kClosedUnfencedNs = 1'000'000'000;
/// A session that is closed in order hardly ever leaves an index node outside of its tree. After this many closed
/// sessions a sweep of the indexes is due (R31).
inline constexpr uint64_t kClosedToSweep = 1'024;
/// Commits that the commit log has taken and not written yet, or whose records are not on the disk yet. Beyond it,
/// commits wait at their clients: begins of transactions that may write get kOverloaded.
inline constexpr size_t kMaxUnflushedCommits = 1'048'576;
/// Begins that may wait at one time for the disk to store a higher bound of ids; more are refused with kOverloaded. It
/// bounds memory: 512 clients with full windows (wire::kManagerReplyWindow), 2 MiB.
inline constexpr size_t kMaxWaitingBegins = 65'536;
/// Memory for the large answers that the windows of all sessions keep for repetitions (R3): two sessions' worth of the
/// largest ones. A request whose answer would not fit is refused with kOverloaded before it is executed.
inline constexpr size_t kMaxKeptAnswerBytes = 2 * wire::kManagerReplyWindow.large_bytes;
/// What a client that is refused with kOverloaded is advised to wait, and one that comes while the cluster starts or
/// the commit manager recovers.
inline constexpr uint64_t kRetryOverloadedNs = 10'000'000;
inline constexpr uint64_t kRetryUnavailableNs = 50'000'000;

/// What differs between deployments and tests; the defaults are the named limits.
struct CoreOptions {
  /// A new cluster's first epoch. Each start of the commit manager is an epoch (R11); it names snapshots and
  /// publications. After a restart the stored one counts on.
  uint64_t epoch = 1;
  /// A new cluster's first ids; after a restart those above the stored bounds.
  TransactionId first_transaction{1};
  SessionId first_session{1};
  /// The shards are dealt out when this many nodes have registered, and do not move afterwards. Until then sessions are
  /// refused with kUnavailable. 0: the first node gets all shards, and sessions are never refused.
  uint32_t initial_nodes = 1;
  /// Delay from a change to the publication that tells the storage nodes of it (R13).
  uint64_t publish_interval_ns = 10'000'000;
  /// Snapshots open for longer are listed exactly in publications; the younger ones share the floor.
  uint64_t young_ns = 100'000'000;
  /// Lease of a session. A session that is silent for longer, and a moment more, is fenced and recovered (R8).
  uint64_t client_lease_ns = 2'000'000'000;
  /// A storage node's lease (R9), renewed by RenewNode. Counted with an eighth more here.
  uint64_t node_lease_ns = 2'000'000'000;
  /// A transaction that is open for longer fences its whole session (R8); noticed within a sixteenth more.
  uint64_t max_transaction_age_ns = 60'000'000'000;
  /// Minimum time for which the commit log keeps a commit, for a client that lost the answer (R4). Only time in which
  /// the commit manager serves counts.
  uint64_t outcome_keep_ns = 600'000'000'000;
  /// Ids reserved in the durable state at a time (R11). The next ones are reserved when half of these are left, so a
  /// disk that stalls stops begins only when that half is used up.
  uint64_t ids_ahead = 1'000'000;
  uint64_t closed_to_sweep = kClosedToSweep;
  size_t max_unflushed_commits = kMaxUnflushedCommits;
  size_t max_waiting_begins = kMaxWaitingBegins;
  size_t max_waiting_answers = kMaxWaitingAnswers;
  size_t max_waiting_answer_bytes = kMaxWaitingAnswerBytes;
  size_t max_kept_answer_bytes = kMaxKeptAnswerBytes;
  size_t max_sessions = kMaxSessions;
  size_t max_open_per_session = kMaxOpenPerSession;
  size_t max_open = kMaxOpenIds;
  size_t max_snapshots_per_session = kMaxSnapshotsPerSession;
  size_t max_snapshot_bytes = kMaxSnapshotBytes;
  size_t max_tables = kMaxTables;
  size_t max_catalog_bytes = kMaxCatalogBytes;
  size_t max_publication_bytes = kMaxPublicationBytes;
};

/// Where the core's messages go. Implemented by the driver; called from inside the core's calls only.
class Outbox {
 public:
  virtual ~Outbox() = default;
  /// Sends one message; its bytes are the core's and are copied before the call returns. False if the peer's queue is
  /// full: the core then drops what a later message replaces, and closes the peer otherwise.
  virtual bool send(PeerId peer, Bytes message) = 0;
  /// Ends the connection, after what was sent. The core has forgotten the peer already: no Core::peer_lost() follows.
  virtual void close(PeerId peer, const Status& why) = 0;
  /// A line for operators: a session or node came or went. `where` makes its kind, as in common/base/log.h.
  virtual void note(const std::string& line, std::source_location where = std::source_location::current()) = 0;
};

/// Stores what must survive a restart of the commit manager (R11): one block of bytes, opaque to the driver, replaced
/// as a whole. Implemented by the driver; called from inside the core's calls. The first on_time() stores the first
/// state.
class Durable {
 public:
  virtual ~Durable() = default;
  /// Starts to replace the stored state; the bytes are copied before the call returns. The outcome if it is known
  /// at once, otherwise nothing: then the driver calls Core::stored() with it later, and the core starts no other store
  /// before that. Must not block where the core serves leases. After an error the core says nothing more to anybody
  /// (Core::durable_status()), and the driver stops the process.
  virtual std::optional<Status> store(Bytes state) = 0;
};

/// Ids first … last, both included.
struct IdRange {
  TransactionId first;
  TransactionId last;

  bool operator==(const IdRange&) const = default;
};

/// What a commit log holds.
struct CommitLogContents {
  /// Committed transactions: ranges that ascend, do not touch and do not overlap.
  std::vector<IdRange> committed;
  /// Ids up to here may have been committed and cut from the log: what became of them is not known.
  TransactionId cut;
  /// Commits appended so far, over all epochs, those that were cut included.
  uint64_t end = 0;

  bool operator==(const CommitLogContents&) const = default;
};

/// Keeps the ids of committed transactions (R11). Implemented by the driver (commit-manager/src/log), by the simulator
/// and by tests; called from inside the core's calls. Positions count commits, from 1, over all epochs.
class CommitLog {
 public:
  virtual ~CommitLog() = default;
  /// Appends these commits, as one batch: positions end + 1 … Never blocks and never fails at once: the driver calls
  /// Core::logged() when they are written, and again when they are on the disk.
  virtual void append(std::span<const TransactionId> ids) = 0;
  /// Everything that is still needed of what was appended, these commits included that are not written yet: the log
  /// begins anew with it, when it has the time, and drops what lies before. Never blocks.
  virtual void begin_anew(CommitLogContents needed) = 0;
  /// Bytes appended since the log began anew last: the core lets it begin anew when it has grown long.
  virtual uint64_t bytes() const = 0;
};

/// How far the commit log has come.
struct CommitLogProgress {
  /// Commits up to this position may be answered and seen: with `--commit-log sync` they are on the disk, with `os`
  /// they outlive the process.
  uint64_t accepted = 0;
  /// Commits up to this position are on the disk. Not above `accepted`.
  uint64_t flushed = 0;
};

/// A storage node, for administration. Its state is in `info`.
struct NodeStatus {
  wire::NodeInfo info;
  bool live = false;         ///< info.state is kLive
  bool memory_lost = false;  ///< it has started anew, and nobody has accepted that its records are lost (R10)
  uint32_t shards = 0;
  uint64_t capacity_bytes = 0;
};

/// An open transaction whose session has ended (R8): what recovery starts from.
struct Orphan {
  TransactionId id;
  SessionId session;
};

/// What the recoverer has to do about one session that has ended, at the nodes that refuse it by now (R8); or, after a
/// restart, about all sessions of earlier epochs (R11).
///
/// The recoverer asks each of `nodes` for the intents of the session, undoes those of `aborted` transactions, index
/// changes first, then records in falling order of ids, and reports by recovered().
struct RecoveryTask {
  SessionId session;  ///< 0: all sessions of earlier epochs
  /// Ascending. Of a session: its transactions that were not accepted as committed; intents of others are left alone.
  std::shared_ptr<const std::vector<TransactionId>> aborted;
  /// Of all sessions: the transactions of earlier epochs that are committed; the intents of all others up to
  /// `last_of_earlier` are undone.
  std::shared_ptr<const std::vector<IdRange>> committed;
  TransactionId last_of_earlier;
  std::vector<NodeId> nodes;

  /// Whether recovery undoes the intents of that transaction.
  bool undoes(TransactionId id) const;
};

/// Sessions that can write nothing any more: every storage node refuses them, or holds no lease (R7, R9).
struct FencedSessions {
  wire::FenceSet set;
  uint64_t lost = 0;    ///< of them that ended otherwise than in order, since the start; a restart counts as one
  uint64_t closed = 0;  ///< of them that were closed with nothing left, since the start
};

/// A session that is open, or has ended and leaves something to recover.
struct SessionStatus {
  enum class State : uint8_t {
    kOpen,
    kFencing,     ///< has ended; not every storage node is known to refuse it
    kRecovering,  ///< fenced everywhere; its transactions are the recoverer's
  };
  SessionId id;
  std::string name;  ///< what the client calls itself
  State state = State::kOpen;
  bool connected = false;
  bool recoverer = false;  ///< the commit manager's own
  uint64_t silent_ns = 0;  ///< since it was last heard of; since its end if it has ended
  uint64_t open = 0;       ///< transactions
  std::string end;         ///< why it has ended
};

/// "open", "fencing", "recovering".
std::string_view to_string(SessionStatus::State state);

/// The commit manager's state machine.
///
/// Owner: a driver, who also owns the outbox. Threads: one. Never blocks, does no I/O, reads no clock: `now_ns` is the
/// driver's, monotonic. Begins and completions allocate nothing once the structures have reached their working size.
/// Bytes from peers never reach an assertion.
///
/// Invariants:
/// 1. Ids are dense and increasing, over all sessions; each is given to one session (R12).
/// 2. A snapshot sees exactly the ids that were finished (committed, or aborted) when its Begin was executed; so of two
///    snapshots, the later one sees all that the earlier one sees, and what was completed before a Begin is seen by it
///    (strong snapshot isolation).
/// 3. Only the session that began a transaction completes it (R8). Its outcome never changes.
/// 4. A publication covers every snapshot that is open, and everything that it says later snapshots see, they see
///    (R13).
/// 5. A table is in the clients' catalog only while every live node has it (R30).
/// 6. What a session that has ended has left at a storage node is handed to recovery only when that node has
///    acknowledged the session's fence (R7, R8). Its transactions are complete when recovery has undone them at every
///    node whose records are not lost.
/// 7. Nothing is said to anybody before that on which it depends is stored (R11): a change of tables, nodes or shards
///    is answered when it is stored; ids and sessions are given below bounds that are stored; clients and nodes are
///    shown the catalog as it is stored. A commit is answered and seen when the commit log says so. Everything else
///    goes on while the disk is busy.
class Core {
 public:
  /// `state` is what `durable` stored last, and has passed check_state(); empty: a new cluster. Without `durable`
  /// nothing survives, and `state` is not looked at: for `loam dev` and tests. Starts to store the new epoch; until
  /// that is done no session is opened and no storage node registered. `log` is the commit log, and `logged` what it
  /// has held since before; without it commits are answered at once, and are forgotten with the process.
  Core(const CoreOptions& options, Outbox& outbox, Durable* durable = nullptr, Bytes state = {},
       CommitLog* log = nullptr, const CommitLogContents& logged = {});
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Ok if a core can start from these bytes; kMalformed or kUnsupportedVersion says what is wrong with them.
  static Status check_state(Bytes state);
  /// Reports the outcome of the store that is under way, and sends the answers that waited for it. Without such a store
  /// it does nothing.
  void stored(const Status& outcome);
  /// The commit log has come so far.
  void logged(const CommitLogProgress& progress);
  /// The commit log has failed for good: as after an error of a store.
  void log_failed(const Status& why);
  /// The first error of a store or of the commit log. From then on the core executes nothing and says nothing: stop the
  /// process.
  Status durable_status() const;

  /// gRPC address that clients are told; empty (the default) if there is none.
  void set_admin_address(std::string address);

  /// All messages of one frame of a peer, in order.
  void on_messages(PeerId peer, std::span<const Bytes> messages, uint64_t now_ns);

  /// The connection is gone. Sessions and storage nodes outlive it: a client resumes its session over another one, a
  /// node registers again; otherwise their leases run out.
  void peer_lost(PeerId peer);

  /// Leases, ages, publications: whatever is due.
  void on_time(uint64_t now_ns);
  /// When on_time() has something to do; UINT64_MAX if nothing is pending.
  uint64_t next_deadline_ns() const;

  /// Catalog changes of the administration; the same as the clients' messages. `done` is called once, now or from a
  /// later call of the core, unless the core is destroyed before.
  void create_table(const wire::CreateTable& request, std::function<void(Result<wire::TableCreated>)> done);
  void drop_table(const wire::DropTable& request, std::function<void(Result<wire::TableDropped>)> done);

  /// An operator accepts that the records of this node's shards are lost (R9, R10): it serves them, empty, from now on;
  /// or from when the leases of its earlier incarnations have run out. `done` as for tables. kInvalidArgument: no such
  /// node, or it has lost nothing; kUnavailable: it has to be started anew first.
  void accept_loss(NodeId node, std::function<void(Status)> done);

  /// A new session for the commit manager's own recoverer: without lease and connection, good for attaching to storage
  /// nodes. The one before is fenced, like a dead client's. SessionId(0) if the disk has reserved no more numbers: ask
  /// again.
  SessionId open_recoverer(uint64_t now_ns);
  /// What there is to recover at this moment: each node of an ended session as soon as it refuses the session; the same
  /// again until it is reported. After a restart one task for all earlier sessions, once the owners of all shards are
  /// registered, have all their memory or their loss accepted, and have acknowledged the fence of those sessions.
  std::vector<RecoveryTask> recovery_tasks(size_t max) const;
  /// What the task said is undone at these nodes. Nodes that have been started anew meanwhile do not count.
  void recovered(const RecoveryTask& task, uint64_t now_ns);
  /// Since the last swept() sessions have ended that may have left nodes of indexes half made: one that was lost, or
  /// CoreOptions::closed_to_sweep that were closed. The sessions whose remains may be removed; null: there is no index,
  /// or nothing to do. Valid until the core is called again.
  const FencedSessions* sweep_due() const;
  /// What these have left is removed.
  void swept(const FencedSessions& sessions);
  /// Nodes with incarnations, and the shard map, as they are stored: what a drop takes away counts as undone (R30), and
  /// a drop that is not stored may be forgotten.
  wire::Catalog catalog_for_recovery() const;

  /// The stored catalog, which is the one that clients see.
  wire::Catalog catalog() const;
  std::vector<NodeStatus> nodes() const;
  std::vector<Orphan> orphans() const;
  std::vector<SessionStatus> sessions() const;
  /// What became of a transaction, as its client would be told (R4).
  wire::Outcome outcome(TransactionId id) const;
  /// The id of the cluster (R10).
  wire::ClusterId cluster() const;
  Statistics statistics() const;
  /// True once sessions are let in: the shard map is dealt out and every node has it.
  bool ready() const;

  /// Whole-structure tier of the assertions: recounts everything. Slow.
  void check_invariants() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::commit
