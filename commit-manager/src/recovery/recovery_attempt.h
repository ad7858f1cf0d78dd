// One attempt of the recoverer at a task: it undoes what it can at the storage nodes of the task [R2, abort order;
// R8, completion by the owner, recovery after the fence; R9, leases of storage nodes; R11, commit log and restart of
// the commit manager; R27, index entries; R30, table creation and drop].
#pragma once

#include <cstddef>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/recovery/recovery_tree.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/wire/storage.h"

namespace loam::commit {

class RecoveryEngine;

/// Upper bound on the records of one Revert message, which keeps a node's batch short.
inline constexpr size_t kRevertBatchRecords = 1'024;
/// Upper bound on the Revert messages of one task that are under way to one node.
inline constexpr size_t kRevertsInFlight = 16;

/// The result of an attempt at one node of its task.
struct NodeOutcome {
  NodeId node;
  Status status;      ///< ok: no intent of the task is left there
  NodeId blocked_by;  ///< the node that did not answer or refused; 0: no node caused the failure
};

/// A version of a record that has to be reverted.
struct WrittenVersion {
  TransactionId transaction;
  wire::RecordId record;

  auto operator<=>(const WrittenVersion&) const = default;
};
static_assert(sizeof(WrittenVersion) == 24);

/// Keeps the newest version of each record in `records`, once and in falling order of transactions, and returns the
/// others. The caller reverts those after the storage node has answered for the newest ones (R8).
std::vector<WrittenVersion> extract_superseded(std::vector<WrittenVersion>& records);

/// One attempt at one task. It runs in one fiber with helper fibers, and undoes as much as it can:
///
///     1. read the intents of every node, page by page; undo index changes at once, collect records
///     2. revert the records of every node, the newest version of each record first
///     3. repeat if there are further pages
///
/// Pages are left after step 1 only if the recoverer then holds RecovererOptions::max_buffered_records. So all index
/// changes of a task are undone before its records, except in a huge task. This order saves conflicts: a claimed
/// record keeps other transactions away from its index entries. Safety does not depend on the order (R27). Versions
/// of one record may come in different rounds. The node then refuses to revert the older one, and the next attempt
/// finds the newer one gone.
///
/// A node that does not answer, or refuses to revert a record, does not stop the undo of anything else (R9). A node
/// is done when each intent of the task that it named is undone.
///
/// **Why every step may be repeated, arrive late, or meet the same step of another recoverer.** The sessions are
/// fenced at the nodes of the task and their transactions are aborted for good, so no undone intent comes back. A
/// revert names a transaction, and ids are never reused: a late revert finds nothing, and removes no other version. A
/// write of a tree node is conditional on its exact version, and versions never come back (R21): a late write changes
/// nothing, or does what it would have done before. A node keeps its intents until a publication says that their
/// transactions are complete (R5), so every attempt gets all of them.
class RecoveryAttempt {
 public:
  RecoveryAttempt(RecoveryEngine& engine, const RecoveryTask& task);
  RecoveryAttempt(const RecoveryAttempt&) = delete;
  RecoveryAttempt& operator=(const RecoveryAttempt&) = delete;

  /// Runs the attempt; called once, in a fiber. Returns one outcome for each node of the task.
  std::vector<NodeOutcome> run();

 private:
  /// Progress of the attempt at one node of the task.
  struct NodePart {
    NodePart(RecoveryEngine& owner, NodeId node);
    ~NodePart();
    NodePart(const NodePart&) = delete;
    NodePart& operator=(const NodePart&) = delete;

    RecoveryEngine& engine;
    NodeOutcome outcome;
    wire::IntentPosition end;  ///< end of the pages read so far
    bool more = true;          ///< there may be further pages
    std::vector<WrittenVersion> records;
    size_t buffered = 0;  ///< records counted by RecoveryEngine::reserve_records()
  };
  struct RevertCall;

  void read_intents(NodePart& part);
  Status process_page(NodePart& part, const wire::IntentsReply& page);
  void revert(NodePart& part);
  /// Reverts `records`, which name each record once. False: the node does not answer.
  bool revert(NodePart& part, const std::vector<WrittenVersion>& records);
  bool process_revert_reply(NodePart& part, RevertCall& sent);
  void fail_part(NodePart& part, NodeId by, const Status& status);

  RecoveryEngine& engine_;
  const RecoveryTask& task_;
  IndexUndo indexes_;
};

}  // namespace loam::commit
