// Counters and levels of the commit manager.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/ids.h"
#include "common/base/statistics.h"
#include "common/net/transport/transport_counters.h"

namespace loam::commit {

/// A storage node that this commit manager has refused, because the history of the commit manager lacks something
/// that the node has received (R10, cluster identity and incarnations).
struct RefusedNode {
  std::string address;        ///< address of its data path
  std::string admin_address;  ///< address of its administration
  std::string reason;         ///< the difference between the histories
};

/// Events of the state machine since the start. fields() describes each counter.
struct CoreCounts {
  /// A count or a level; fields() explains it.
  /// @{
  uint64_t sessions_opened = 0, sessions_lost = 0, sessions_expired = 0, sessions_over_max_age = 0,
           sessions_resumed = 0;
  uint64_t fences = 0, recovered_aborted = 0, outcome_queries = 0, log_rewrites = 0;
  uint64_t node_leases_expired = 0, durable_stores = 0, publication_bytes = 0, publications_skipped = 0;
  uint64_t messages = 0, repeated = 0, refused = 0, malformed = 0;
  /// @}

  /// Lists all fields with name, kind and help text.
  static constexpr auto fields() {
    using S = CoreCounts;
    using statistics::counter;
    using statistics::gauge;
    return std::tuple(
        counter("sessions_opened", &S::sessions_opened, "client sessions opened"),
        counter("sessions_lost", &S::sessions_lost,
                "sessions that ended in any other way than an orderly close; each was fenced"),
        counter("sessions_expired", &S::sessions_expired, "lost sessions whose lease ran out"),
        counter("sessions_over_max_age", &S::sessions_over_max_age,
                "lost sessions that had a transaction open for longer than the maximum age"),
        counter("sessions_resumed", &S::sessions_resumed, "sessions continued over another connection"),
        counter("fences", &S::fences, "fence sets sent to the storage nodes"),
        counter("recovered_aborted", &S::recovered_aborted, "transactions that recovery aborted"),
        counter("outcome_queries", &S::outcome_queries, "outcomes that clients asked for under a later session"),
        counter("log_rewrites", &S::log_rewrites, "rewrites of the commit log that were started"),
        counter("node_leases_expired", &S::node_leases_expired, "leases of storage nodes that ran out"),
        counter("durable_stores", &S::durable_stores, "states stored on the disk"),
        gauge("publication_bytes", &S::publication_bytes, "bytes of the newest publication"),
        counter("publications_skipped", &S::publications_skipped,
                "publications that were not sent to a node because its queue was full"),
        counter("messages", &S::messages, "messages received"),
        counter("repeated", &S::repeated, "requests answered from the reply window"),
        counter("refused", &S::refused, "requests answered with an error"),
        counter("malformed", &S::malformed, "connections closed because of a malformed message"));
  }
};

/// Counters and levels of the state machine, copied at one moment. fields() describes each of them.
struct Statistics : CoreCounts {
  /// A count, a level, a flag or a text; fields() explains it.
  /// @{
  uint64_t epoch = 0;
  std::string cluster;
  std::string not_serving;
  bool restarting = false;
  uint64_t sessions = 0, sessions_fencing = 0, sessions_recovering = 0;
  uint64_t last_transaction = 0;
  uint64_t open = 0, orphaned_transactions = 0;
  uint64_t begins = 0, commits = 0, aborts = 0, read_only_begins = 0, upgradable_begins = 0, upgrades = 0;
  uint64_t read_only_snapshots = 0, upgradable_snapshots = 0, open_snapshots = 0, snapshot_bytes = 0,
           snapshot_memory_bytes = 0;
  uint64_t oldest_snapshot_age_ns = 0, oldest_writer_age_ns = 0;
  uint64_t base = 0, seen_by_all = 0;
  uint64_t publications = 0, publication_snapshots = 0;
  uint64_t catalog_version = 0, tables = 0, pending_changes = 0;
  uint64_t nodes_live = 0, nodes_dead = 0, nodes_unreachable = 0, nodes_lost = 0;
  uint64_t log_end = 0, log_accepted = 0, log_flushed = 0, log_truncated_up_to = 0, log_ranges = 0, log_bytes = 0;
  uint64_t retained_reply_bytes = 0;
  bool sweep_due = false;
  uint64_t durable_bytes = 0;
  bool storing = false;
  uint64_t deferred_replies = 0, queued_begins = 0;
  /// @}
  std::vector<RefusedNode> refused_nodes;  ///< since the start, without nodes that were accepted later

  /// Lists all fields except the refused nodes, with name, kind and help text.
  static constexpr auto fields() {
    using S = Statistics;
    using statistics::counter;
    using statistics::flag;
    using statistics::gauge;
    using statistics::text;
    return std::tuple_cat(
        std::tuple(
            gauge("epoch", &S::epoch, "number of the current start of the commit manager"),
            text("cluster", &S::cluster, "id of the cluster, as 32 hexadecimal digits"),
            text("not_serving", &S::not_serving,
                 "why no client is served: a storage node has received something that this state lacks, or storage "
                 "nodes have not reported yet; empty while clients are served"),
            flag("restarting", &S::restarting, "earlier epochs are not recovered yet; no begin is answered"),
            gauge("sessions", &S::sessions, "client sessions that are open"),
            gauge("sessions_fencing", &S::sessions_fencing, "ended sessions that are not fenced everywhere yet"),
            gauge("sessions_recovering", &S::sessions_recovering,
                  "ended sessions that are fenced everywhere and have transactions left to recover"),
            gauge("last_transaction", &S::last_transaction, "the highest id given out"),
            gauge("open", &S::open, "open transactions"),
            gauge("orphaned_transactions", &S::orphaned_transactions,
                  "open transactions of ended sessions; they wait for recovery and hold back garbage collection"),
            counter("begins", &S::begins, "read-write transactions begun"),
            counter("commits", &S::commits, "transactions completed as committed"),
            counter("aborts", &S::aborts, "transactions completed as aborted"),
            counter("read_only_begins", &S::read_only_begins, "read-only transactions begun"),
            counter("upgradable_begins", &S::upgradable_begins, "transactions begun without an id"),
            counter("upgrades", &S::upgrades, "ids that upgradable transactions drew at their first write"),
            gauge("read_only_snapshots", &S::read_only_snapshots, "registered read-only snapshots"),
            gauge("upgradable_snapshots", &S::upgradable_snapshots, "registered upgradable snapshots"),
            gauge("open_snapshots", &S::open_snapshots,
                  "distinct snapshots that open transactions and registered snapshots hold"),
            gauge("snapshot_bytes", &S::snapshot_bytes, "encoded size of the newest snapshot"),
            gauge("snapshot_memory_bytes", &S::snapshot_memory_bytes, "bytes of memory for the open snapshots"),
            gauge("oldest_snapshot_age_ns", &S::oldest_snapshot_age_ns,
                  "age of the oldest snapshot that a transaction holds; versions that it sees stay in memory"),
            gauge("oldest_writer_age_ns", &S::oldest_writer_age_ns,
                  "age of the oldest snapshot that a read-write or upgradable transaction holds"),
            gauge("base", &S::base, "id up to which every id is finished"),
            gauge("seen_by_all", &S::seen_by_all,
                  "version up to which every open and later snapshot sees all versions"),
            counter("publications", &S::publications, "publications made for the storage nodes"),
            gauge("publication_snapshots", &S::publication_snapshots, "snapshots that the newest publication lists"),
            gauge("catalog_version", &S::catalog_version, "version of the catalog"),
            gauge("tables", &S::tables, "tables, including indexes and Loam's own tables"),
            gauge("pending_changes", &S::pending_changes, "creations and drops of tables that wait for storage nodes"),
            gauge("nodes_live", &S::nodes_live, "storage nodes that serve or wait for their first lease"),
            gauge("nodes_dead", &S::nodes_dead, "storage nodes that are unreachable or lost"),
            gauge("nodes_unreachable", &S::nodes_unreachable, "storage nodes whose lease ran out"),
            gauge("nodes_lost", &S::nodes_lost,
                  "storage nodes that started again with empty memory and whose loss is not accepted"),
            gauge("log_end", &S::log_end,
                  "position of the last commit that was given to the commit log; positions count over all epochs"),
            gauge("log_accepted", &S::log_accepted, "position up to which commits are answered and seen by snapshots"),
            gauge("log_flushed", &S::log_flushed, "position up to which the commit log is on the disk"),
            gauge("log_truncated_up_to", &S::log_truncated_up_to,
                  "id up to which the commit log may have dropped outcomes"),
            gauge("log_ranges", &S::log_ranges, "ranges of committed ids in the checkpoint of the commit log"),
            gauge("log_bytes", &S::log_bytes, "bytes appended to the commit log since its last rewrite"),
            gauge("retained_reply_bytes", &S::retained_reply_bytes,
                  "bytes of large replies that are kept for repeated requests"),
            flag("sweep_due", &S::sweep_due,
                 "sessions have ended that may have left orphaned tree nodes, and no sweep has followed"),
            gauge("durable_bytes", &S::durable_bytes, "bytes of the newest state"),
            flag("storing", &S::storing, "a state is being written to the disk"),
            gauge("deferred_replies", &S::deferred_replies, "replies and messages that wait for the disk"),
            gauge("queued_begins", &S::queued_begins, "begins that wait until the disk stores a higher bound of ids")),
        CoreCounts::fields());
  }
};

/// Counters and levels of the recoverer. fields() describes each of them.
struct RecoveryStatistics {
  /// A count or a level; fields() explains it.
  /// @{
  uint64_t starts = 0, tasks = 0, intents = 0, reverted = 0, index_changes = 0, repeated = 0;
  uint64_t rounds = 0, restarts = 0, sweeps = 0, swept_nodes = 0;
  uint64_t queued = 0, running = 0;
  /// @}
  std::map<NodeId, uint64_t> waiting;  ///< level: number of tasks that wait for a node

  /// Lists all fields except `waiting`, with name, kind and help text.
  static constexpr auto fields() {
    using S = RecoveryStatistics;
    using statistics::counter;
    using statistics::gauge;
    return std::tuple(
        counter("starts", &S::starts, "starts of the recoverer; more than one if it was fenced or failed"),
        counter("tasks", &S::tasks, "pairs of an ended session and a storage node that are recovered"),
        counter("intents", &S::intents, "intents that storage nodes reported"),
        counter("reverted", &S::reverted, "records reverted for aborted transactions"),
        counter("index_changes", &S::index_changes, "index changes undone for aborted transactions"),
        counter("repeated", &S::repeated, "tasks put off after an attempt that could not finish them"),
        counter("rounds", &S::rounds, "poll rounds of the recoverer's thread"),
        counter("restarts", &S::restarts,
                "tasks for all sessions of earlier epochs, given after a restart of the commit manager"),
        counter("sweeps", &S::sweeps, "sweeps of the indexes for orphaned tree nodes of ended sessions"),
        counter("swept_nodes", &S::swept_nodes, "orphaned tree nodes that sweeps removed"),
        gauge("queued", &S::queued, "tasks in the queue"), gauge("running", &S::running, "tasks under way"));
  }
};

/// Counters and levels of a running commit manager and its transport.
struct ManagerStatistics : net::TransportNumbers<uint64_t> {
  Statistics core;              ///< the state machine: sessions, transactions, snapshots, catalog, commit log
  RecoveryStatistics recovery;  ///< the recoverer, which undoes the transactions of dead clients
  uint64_t uptime_ns = 0;       ///< time since the start of the commit manager

  /// Lists all fields except those of `core` and `recovery`, which have lists of their own.
  static constexpr auto fields() {
    return std::tuple_cat(
        std::tuple(statistics::counter("uptime_ns", &ManagerStatistics::uptime_ns, "time since the start")),
        net::TransportNumbers<uint64_t>::fields());
  }
};

}  // namespace loam::commit
