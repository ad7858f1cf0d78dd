// What the commit manager tells of itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/ids.h"
#include "common/base/statistics.h"
#include "common/net/transport_counters.h"

namespace loam::commit {

/// A storage node that this commit manager has refused, because its own history does not contain what the node was told
/// (R10).
struct RefusedNode {
  std::string address;
  std::string admin_address;
  std::string reason;
};

/// What the state machine counts as it goes, since the start.
struct CoreCounts {
  uint64_t sessions_opened = 0, sessions_lost = 0, sessions_expired = 0, sessions_aged = 0, sessions_resumed = 0;
  uint64_t fences = 0, recovered_aborted = 0, outcomes_asked = 0, log_restarts = 0;
  uint64_t node_leases_expired = 0, durable_stores = 0, publication_bytes = 0, publications_skipped = 0;
  uint64_t messages = 0, repeated = 0, refused = 0, malformed = 0;

  static constexpr auto fields() {
    using S = CoreCounts;
    using statistics::counter;
    using statistics::level;
    return std::tuple(
        counter("sessions_opened", &S::sessions_opened, "client sessions"),
        counter("sessions_lost", &S::sessions_lost,
                "sessions that did not end by closing with nothing left; all were fenced"),
        counter("sessions_expired", &S::sessions_expired, "of the lost: their lease ran out"),
        counter("sessions_aged", &S::sessions_aged, "of the lost: a transaction was open for too long"),
        counter("sessions_resumed", &S::sessions_resumed, "sessions that went on over another connection"),
        counter("fences", &S::fences, "fence sets sent to the storage nodes"),
        counter("recovered_aborted", &S::recovered_aborted, "transactions that recovery rolled back"),
        counter("outcomes_asked", &S::outcomes_asked, "outcomes that clients asked for under a later session"),
        counter("log_restarts", &S::log_restarts, "times that the commit log began anew with what was needed of it"),
        counter("node_leases_expired", &S::node_leases_expired, "leases of storage nodes that ran out"),
        counter("durable_stores", &S::durable_stores, "states stored"),
        level("publication_bytes", &S::publication_bytes, "the newest publication"),
        counter("publications_skipped", &S::publications_skipped,
                "publications not sent to a node whose queue was full"),
        counter("messages", &S::messages, "messages received"),
        counter("repeated", &S::repeated, "requests answered from the reply window"),
        counter("refused", &S::refused, "requests answered with an error"),
        counter("malformed", &S::malformed, "connections closed because of what they sent"));
  }
};

/// Counters and levels of the state machine. A copy taken at one moment.
struct Statistics : CoreCounts {
  uint64_t epoch = 0;
  std::string cluster;
  std::string not_serving;
  bool restarting = false;
  uint64_t sessions = 0, sessions_fencing = 0, sessions_recovering = 0;
  uint64_t last_transaction = 0;
  uint64_t open = 0, orphaned_open = 0;
  uint64_t begins = 0, commits = 0, aborts = 0, read_only_begins = 0, upgradable_begins = 0, upgrades = 0;
  uint64_t read_only_snapshots = 0, upgradable_snapshots = 0, open_snapshots = 0, snapshot_bytes = 0,
           snapshot_memory_bytes = 0;
  uint64_t base = 0, seen_by_all = 0;
  uint64_t publications = 0, publication_exact = 0;
  uint64_t catalog_version = 0, tables = 0, pending_changes = 0;
  uint64_t nodes_live = 0, nodes_dead = 0, nodes_unreachable = 0, nodes_lost = 0;
  uint64_t log_end = 0, log_accepted = 0, log_flushed = 0, log_cut = 0, log_ranges = 0, log_bytes = 0;
  uint64_t kept_answer_bytes = 0;
  bool sweep_due = false;
  uint64_t durable_bytes = 0;
  bool storing = false;
  uint64_t answers_waiting = 0, begins_waiting = 0;
  std::vector<RefusedNode> refused_nodes;  ///< since the start, without those that were accepted later

  /// All but the refused nodes.
  static constexpr auto fields() {
    using S = Statistics;
    using statistics::counter;
    using statistics::flag;
    using statistics::level;
    using statistics::text;
    return std::tuple_cat(
        std::tuple(
            level("epoch", &S::epoch, "one start of the commit manager"),
            text("cluster", &S::cluster, "32 hexadecimal digits"),
            text("not_serving", &S::not_serving,
                 "why no client is let in: a storage node was told what this state does not contain, or storage nodes "
                 "have not reported yet what they were told; empty if neither is so"),
            flag("restarting", &S::restarting, "older epochs are not recovered yet: no begin is answered"),
            level("sessions", &S::sessions, "client sessions that are open"),
            level("sessions_fencing", &S::sessions_fencing,
                  "ended sessions that not every storage node is known to refuse"),
            level("sessions_recovering", &S::sessions_recovering,
                  "ended sessions that are fenced everywhere and have transactions left to recover"),
            level("last_transaction", &S::last_transaction, "the highest id given out"),
            level("open", &S::open, "open transactions"),
            level("orphaned_open", &S::orphaned_open,
                  "of the open: their session has ended; they wait for recovery and hold garbage collection back"),
            counter("begins", &S::begins, "read-write transactions begun"),
            counter("commits", &S::commits, "transactions completed as committed"),
            counter("aborts", &S::aborts, "transactions completed as aborted"),
            counter("read_only_begins", &S::read_only_begins, "read-only transactions begun"),
            counter("upgradable_begins", &S::upgradable_begins, "transactions begun without an id"),
            counter("upgrades", &S::upgrades, "ids drawn by such transactions at their first write"),
            level("read_only_snapshots", &S::read_only_snapshots, "read-only snapshots that are held"),
            level("upgradable_snapshots", &S::upgradable_snapshots, "upgradable snapshots that are held"),
            level("open_snapshots", &S::open_snapshots, "different snapshots that transactions hold"),
            level("snapshot_bytes", &S::snapshot_bytes, "encoded size of the newest snapshot"),
            level("snapshot_memory_bytes", &S::snapshot_memory_bytes, "memory of the open snapshots"),
            level("base", &S::base, "every id up to here is finished"),
            level("seen_by_all", &S::seen_by_all, "every open and later snapshot sees versions up to here"),
            counter("publications", &S::publications, "publications to the storage nodes"),
            level("publication_exact", &S::publication_exact, "snapshots that the newest publication lists"),
            level("catalog_version", &S::catalog_version, "version of the catalog"),
            level("tables", &S::tables, "tables, indexes and Loam's own included"),
            level("pending_changes", &S::pending_changes, "creates and drops that wait for storage nodes"),
            level("nodes_live", &S::nodes_live, "storage nodes that serve or wait for their first lease"),
            level("nodes_dead", &S::nodes_dead, "storage nodes that are unreachable or lost"),
            level("nodes_unreachable", &S::nodes_unreachable, "storage nodes whose lease has run out"),
            level("nodes_lost", &S::nodes_lost,
                  "storage nodes that started anew with empty memory, and whose loss is not accepted"),
            level("log_end", &S::log_end, "commits that were given to the commit log, over all epochs"),
            level("log_accepted", &S::log_accepted, "commits up to which they are answered and seen"),
            level("log_flushed", &S::log_flushed, "commits up to which the commit log is on the disk"),
            level("log_cut", &S::log_cut, "ids up to which an outcome may have been cut from the commit log"),
            level("log_ranges", &S::log_ranges, "ranges of committed ids that the commit log has to keep"),
            level("log_bytes", &S::log_bytes, "bytes of the commit log since it began anew"),
            level("kept_answer_bytes", &S::kept_answer_bytes, "large answers, kept for repetitions"),
            flag("sweep_due", &S::sweep_due,
                 "sessions have ended that may have left nodes of indexes half made, and are not swept"),
            level("durable_bytes", &S::durable_bytes, "the newest state"),
            flag("storing", &S::storing, "a state is on its way to the disk"),
            level("answers_waiting", &S::answers_waiting, "answers and messages that wait for the disk"),
            level("begins_waiting", &S::begins_waiting, "begins that wait until more ids are reserved on the disk")),
        CoreCounts::fields());
  }
};

/// What became of the transactions of sessions that have ended.
struct RecoveryStatistics {
  uint64_t starts = 0, tasks = 0, intents = 0, reverted = 0, index_changes = 0, repeated = 0;
  uint64_t rounds = 0, restarts = 0, sweeps = 0, swept_nodes = 0;
  uint64_t queued = 0, running = 0;
  std::map<NodeId, uint64_t> waiting;  ///< level: tasks that wait for a node

  static constexpr auto fields() {
    using S = RecoveryStatistics;
    using statistics::counter;
    using statistics::level;
    return std::tuple(
        counter("starts", &S::starts, "starts of the recoverer: more than one if it was fenced, or failed"),
        counter("tasks", &S::tasks, "ended sessions at storage nodes whose transactions were rolled back there"),
        counter("intents", &S::intents, "intents that storage nodes named"),
        counter("reverted", &S::reverted, "records of rolled back transactions"),
        counter("index_changes", &S::index_changes, "index changes of rolled back transactions"),
        counter("repeated", &S::repeated, "attempts that ended at a node that did not answer"),
        counter("rounds", &S::rounds, "rounds of the recoverer's thread"),
        counter("restarts", &S::restarts, "recoveries of all sessions of earlier epochs, after a restart"),
        counter("sweeps", &S::sweeps, "sweeps of the indexes for nodes that ended sessions have left half made"),
        counter("swept_nodes", &S::swept_nodes, "nodes of indexes that sweeps found and removed"),
        level("queued", &S::queued, "tasks that wait for their turn"),
        level("running", &S::running, "tasks that are being worked on"));
  }
};

/// Counters and levels of a running commit manager.
struct ManagerStatistics : net::TransportNumbers<uint64_t> {
  Statistics core;
  RecoveryStatistics recovery;
  uint64_t uptime_ns = 0;

  /// Without those of core and recovery, which have lists of their own.
  static constexpr auto fields() {
    return std::tuple_cat(
        std::tuple(statistics::counter("uptime_ns", &ManagerStatistics::uptime_ns, "since the start")),
        net::TransportNumbers<uint64_t>::fields());
  }
};

}  // namespace loam::commit
