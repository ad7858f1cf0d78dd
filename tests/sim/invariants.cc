#include "tests/sim/invariants.h"

#include <algorithm>
#include <array>

namespace loam::sim {
namespace {

constexpr auto kInvariants = std::to_array<Invariant>({
    // Reads of a transaction. Each text names what must never be observed.
    {"dirty-read", "R1, architecture 9", "a write of a transaction that had not requested its commit"},
    {"abort-visible", "R2", "a write of a transaction whose client was told that it was aborted"},
    {"fenced-visible", "R7, R8", "a write of a transaction that a server had answered kFenced"},
    {"future-read", "R12", "a write whose commit was requested only after the reader's snapshot was taken"},
    {"version-above-id", "R12", "a version that is not below the reader's own id"},
    {"unwritten-read", "architecture 9", "a version, or a tag in a record, that no transaction wrote there"},
    {"wrong-value", "architecture 9", "another row under a version than its transaction wrote"},
    {"own-write-unread", "architecture 5", "another state of a record than the transaction's own write"},
    {"non-repeatable-read", "R14, architecture 9", "two states of one record in one snapshot"},
    {"fractured-read", "R1, R13, architecture 9", "one write of a transaction without another write of it"},
    {"begin-after-ack", "R1, R12", "the state before a commit that was acknowledged before the reader's begin"},
    {"commit-lost", "R1, R11, architecture 9", "the state before a commit that others saw long before"},
    {"half-commit", "R1, R4, R8", "a part of a transaction whose client died"},
    {"outcome-changed", "R4", "a transaction that was committed, and is aborted, or the reverse"},
    {"lost-record-returned", "R10", "a record of a node that had lost it, after the loss was accepted"},
    {"log-wrong", "R1, R4", "a committed transaction that never requested its commit"},
    {"log-differs", "R4, R11", "at rest, another outcome in the log on disk than the commit manager reports"},
    {"ack-unlogged", "R1, R11",
     "a commit that was acknowledged or seen, and is missing in the commit log of a dead commit manager"},
    {"durable-commit-lost", "R11", "the same after a power cut, if commits are flushed before they are seen"},
    {"flushed-lost", "R10, R13", "commits that counted as flushed, and are missing after a power cut"},
    {"lost-out-of-order", "R11", "a commit that survived a power cut, and had seen one that did not"},
    {"lost-commit-visible", "R11, R13", "a write of a commit that a power cut undid, in a later snapshot"},
    {"older-log-served", "R10", "begins at a commit manager whose log lacks commits that nodes know of"},
    {"commit-over-loss", "R9", "a commit of a transaction that began before the loss of a node was accepted"},
    {"over-age", "R8", "a commit of a transaction that was open for longer than the maximum age"},
    {"intent-left", "R5", "an intent in a node's memory long after the last transaction has ended"},
    {"idle-session-ended", "R3, R8", "the end of a session whose client is alive and has had nothing open"},
    {"sequence-reused", "R3", "two different requests of a session to a server with one sequence"},
    {"snapshot-refused", "R13, R14", "kSnapshotTooOld for a snapshot of a session that is alive"},
    {"lost-shard-served", "R10", "a result for a lost record before an operator accepted the loss"},
    {"long-fork", "R12, R13", "two snapshots that each contain a write that the other lacks"},
    {"snapshot-order", "R1, R12", "begins and commits that no order with all reads explains"},
    // Commits that must not succeed or fail, and ids.
    {"id-twice", "R12, architecture 9", "an id given to two transactions"},
    {"id-order", "R11, R12", "an id below one that was handed out before the begin was requested"},
    {"lost-update", "R16, architecture 9", "two commits that changed one and the same version"},
    {"conflict-missed", "R16, R20", "two commits that wrote one record without seeing each other"},
    {"insert-over-record", "architecture 9", "a committed insert of a record that existed"},
    {"update-of-nothing", "R20", "a committed change of a record that did not exist"},
    {"wrong-refusal", "R3", "a commit refused for a reason that its own snapshot contradicts"},
    {"ack-after-fence", "R7, R8, architecture 9", "an acknowledged commit of a transaction that was told kFenced"},
    // Scans.
    {"scan-exactly-once", "R16, R18, R23, R26, architecture 9", "a record twice, or a missing record"},
    {"scan-snapshot", "R14, R23", "a row that the scan's snapshot does not contain"},
    {"scan-sum", "R13, R23", "a sum or count that is not that of the snapshot"},
    {"scan-predicate", "R23, R24", "rows of a selection that differ from the matching rows of the snapshot"},
    {"scan-expression", "R13, R23", "an error of a row that the snapshot does not contain, or a missing error"},
    // Non-transactional tables and counters.
    {"plain-version-returned", "R21", "a version number that a record had before"},
    {"plain-lost-update", "R21", "two writes that replaced one and the same version"},
    {"plain-applied-twice", "R3, R21", "one write under two versions"},
    {"plain-refused-visible", "R21", "a record of a refused write"},
    {"plain-stale-read", "R21", "a version that had been replaced before the read was sent"},
    {"plain-write-lost", "R21", "the absence of a write that was acknowledged and not replaced"},
    {"plain-unwritten-read", "R21", "a record that no write made"},
    {"plain-wrong-value", "R21", "another row under a version than its writer wrote or kept"},
    {"plain-wrong-refusal", "R3, R21", "a conflict although no other client has written"},
    {"counter-twice", "architecture 2", "a number of a counter given out twice"},
    {"counter-order", "architecture 2", "a number that is not above the previous one of the same object"},
    // Indexes. Ranges by an index are also judged like scans.
    {"index-lost-key", "R27, R28, architecture 9", "no record, or another one, by a value of the snapshot"},
    {"index-phantom", "R2, R27", "at rest, an open entry in an index's tree for a value that its record does not have"},
    {"index-unique", "R28, architecture 9", "two records with one value in a snapshot despite a unique index"},
    {"index-blocked", "R27, R28", "at rest, a refusal of a value that no record has"},
    {"index-damaged", "R10, decision 0015", "kMalformed for an index that cannot have lost a node"},
    {"index-undamaged", "decision 0015", "a result of a read by an index that is damaged by an accepted loss"},
    {"index-refused", "R28, R29", "a creation refused because of equal records that did not exist"},
    {"index-gone", "R30", "kNoSuchTable for an index that no client dropped"},
    {"index-hits", "R27", "a change by an index of other records than its range shows in the snapshot"},
    {"index-stray-node", "R31", "an orphan node of an index after the sweep of all ended sessions"},
    {"index-order", "R27", "records of a range in another order than that of the index"},
    // Bd-trees.
    {"tree-lost-key", "R31, architecture 9", "a missing key that was in the tree during the whole read"},
    {"tree-phantom", "R31, architecture 9", "an entry of a tree that never existed, or was replaced before the read"},
    {"tree-answer", "R31", "a result for a key's only writer that contradicts its own changes"},
    {"tree-order", "architecture 6", "a walk over a tree with keys that do not rise"},
    {"tree-structure", "R31", "at rest, a tree with an inconsistent structure"},
    // Tables.
    {"create-twice", "architecture 1", "two tables with one name at the same time"},
    {"create-schema", "architecture 1", "a table with another schema than the requested one"},
    {"create-refused", "architecture 1", "kAlreadyExists although no table with another schema exists"},
    {"table-id-twice", "R30", "one id for two tables"},
    {"table-lost", "R30", "kNoSuchTable for a table that no client dropped"},
    {"added-field", "R30, decision 0027", "an added field with another value than its last writer gave it"},
    {"added-field-lost", "R30", "a handle without a field that was added before the handle was opened"},
    {"dropped-table-read", "R30", "data of a table after its drop was acknowledged or seen"},
    // Other errors.
    {"set-up", "", "the first tables and rows cannot be created"},
    {"unreadable", "R4, R10", "data that cannot be read after the end of all faults"},
    {"unexpected-answer", "", "a result that this call must not return"},
    {"progress", "architecture 4", "no progress although all faults are over"},
    {"structure", "R16, R17, R21", "at rest, inconsistent chains, pages or index of a table"},
    {"livelock", "architecture 4", "a simulation that needs more events than any run should"},
    {"quiet", "R5, architecture 9", "open or unrecovered transactions long after the last client has ended"},
    {"world", "", "an error of the simulator itself"},
});

}  // namespace

std::span<const Invariant> invariants() { return kInvariants; }

const Invariant* find_invariant(std::string_view name) {
  const auto* found = std::find_if(kInvariants.begin(), kInvariants.end(),
                                   [name](const Invariant& invariant) { return invariant.name == name; });
  return found == kInvariants.end() ? nullptr : found;
}

}  // namespace loam::sim
