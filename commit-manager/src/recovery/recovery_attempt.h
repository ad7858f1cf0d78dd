// One attempt to undo what ended sessions have left at storage nodes [R2, R8, R9, R11, R27, R30].
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

/// Records of one Revert message: a node's batch stays short.
inline constexpr size_t kRevertBatchRecords = 1'024;
/// Revert messages of one task that are under way to one node at a time.
inline constexpr size_t kRevertsInFlight = 16;

/// What an attempt came to at one of its nodes.
struct NodeOutcome {
  NodeId node;
  Status status;      ///< ok: nothing is left there
  NodeId blocked_by;  ///< whose silence or refusal was the reason, if it was a node's
};

/// A version of a record that is to be reverted.
struct Written {
  TransactionId transaction;
  wire::RecordId record;

  auto operator<=>(const Written&) const = default;
};
static_assert(sizeof(Written) == 24);

/// Leaves the newest version of each record in `records`, in falling order of transactions, each once, and returns the
/// others: they are reverted when these are answered (R8).
std::vector<Written> take_covered(std::vector<Written>& records);

/// One attempt at one task, in one fiber and its helpers: as much as can be undone.
///
///     every node's intents, page by page: index changes are undone at once, records gathered
///     every node's records: reverted, the newest version of each first
///     again, if there are further pages
///
/// There are further pages only if the recoverer held RecovererOptions::max_held_records. So index changes come before
/// all records of the task, except in a huge one. That order saves others' conflicts; safety does not depend on it
/// (R27). Versions that cover each other need not be in one turn either: the node refuses to revert the lower one, and
/// the next attempt finds the upper one gone.
///
/// A node that does not answer, or refuses to revert a record, keeps nothing else from being undone (R9). A node is
/// done when each intent of the task that it named is undone.
///
/// **Why every step may be repeated, arrive late, or meet another recoverer's.** The sessions are fenced at the nodes
/// of the task, and their transactions are aborted for good: intents that are undone come never back. A revert names a
/// transaction, and ids are never reused: one that arrives late finds nothing, and takes nothing else off. A write of
/// an index's node is by exact version, and versions never come back (R21): one that arrives late changes nothing, or
/// does what it would have done before. A node keeps its intents until a publication says that their transactions are
/// complete (R5), so every attempt is told all of them.
class RecoveryAttempt {
 public:
  RecoveryAttempt(RecoveryEngine& engine, const RecoveryTask& task);
  RecoveryAttempt(const RecoveryAttempt&) = delete;
  RecoveryAttempt& operator=(const RecoveryAttempt&) = delete;

  /// In a fiber, once. One outcome for each node of the task.
  std::vector<NodeOutcome> run();

 private:
  /// Progress of the attempt at one node of the task.
  struct Part {
    Part(RecoveryEngine& owner, NodeId node);
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    RecoveryEngine& engine;
    NodeOutcome outcome;
    wire::IntentPosition end;  ///< of the pages read
    bool more = true;          ///< there may be others
    std::vector<Written> records;
    size_t held = 0;  ///< records that the engine counts
  };
  struct Sent;

  void read(Part& part);
  Status take(Part& part, const wire::IntentsReply& page);
  void revert(Part& part);
  /// Records of which each is named once. False: the node does not answer.
  bool revert(Part& part, const std::vector<Written>& records);
  bool finish(Part& part, Sent& sent);
  void put_off(Part& part, NodeId by, const Status& status);

  RecoveryEngine& engine_;
  const RecoveryTask& task_;
  IndexUndo indexes_;
};

}  // namespace loam::commit
