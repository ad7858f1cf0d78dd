#include "tests/sim/invariants.h"

#include <algorithm>
#include <array>

namespace loam::sim {
namespace {

constexpr auto kInvariants = std::to_array<Invariant>({
    // What a transaction reads.
    {"dirty-read", "R1, architecture 9", "what a transaction wrote that had not asked for its commit"},
    {"abort-visible", "R2", "what a transaction wrote whose client was told that nothing happened"},
    {"fenced-visible", "R7, R8", "what a transaction wrote that a server had answered kFenced"},
    {"future-read", "R12", "what asked for its commit only after the reader's snapshot was taken"},
    {"version-above-id", "R12", "a version that is not below the reader's own id"},
    {"unwritten-read", "architecture 9", "a version, or a tag in a record, that nobody has written there"},
    {"wrong-value", "architecture 9", "another row under a version than its transaction wrote"},
    {"own-write-unread", "architecture 5", "something else than the transaction's own write"},
    {"non-repeatable-read", "R14, architecture 9", "two states of one record in one snapshot"},
    {"fractured-read", "R1, R13, architecture 9", "one write of a transaction, and the state before another one of it"},
    {"begin-after-ack", "R1, R12", "the state before a commit that was acknowledged before the reader's begin"},
    {"commit-lost", "R1, R11, architecture 9", "the state before a commit that others have seen long since"},
    {"half-commit", "R1, R4, R8", "a part of a transaction whose client died, when all or nothing must be there"},
    {"outcome-changed", "R4", "a transaction that was told or seen to be the one, and is the other"},
    {"lost-record-returned", "R10", "a record of a node that had lost its memory, after that was accepted"},
    {"log-wrong", "R1, R4", "a transaction that is committed and has never asked for it"},
    {"log-differs", "R4, R11", "when all is at rest, another outcome on the disk than the commit manager tells"},
    {"ack-unlogged", "R1, R11",
     "a commit that was acknowledged or seen, and is not in the commit log of a commit manager that has died"},
    {"durable-commit-lost", "R11", "the same after a power cut, where each commit is flushed before it is seen"},
    {"flushed-lost", "R10, R13", "commits that counted as flushed, and are gone after a power cut"},
    {"lost-out-of-order", "R11", "a commit that a power cut has left, and that has seen one that it took"},
    {"lost-commit-visible", "R11, R13", "what a commit wrote that a power cut took, in a snapshot of after it"},
    {"older-log-served", "R10", "begins answered by a commit manager whose log lacks what nodes were told"},
    {"commit-over-loss", "R9", "a commit of a transaction that began before the loss of a node was accepted"},
    {"over-age", "R8", "a commit of a transaction that was open for longer than the maximum age"},
    {"intent-left", "R5", "an intent in a node's memory long after the last transaction has ended"},
    {"idle-session-ended", "R3, R8", "the end of a session whose client lives, and has had nothing open for long"},
    {"snapshot-refused", "R13, R14", "kSnapshotTooOld for a snapshot of a session that lives"},
    {"lost-shard-served", "R10", "an answer for a record whose node had lost it, before an operator accepted that"},
    {"long-fork", "R12, R13", "snapshots, of which each has something that the other has not"},
    {"snapshot-order", "R1, R12", "begins and commits that fit into no order with what was seen"},
    // What a transaction is allowed to do.
    {"id-twice", "R12, architecture 9", "an id given to two transactions"},
    {"id-order", "R11, R12", "an id below one that was given out before the begin was asked for"},
    {"lost-update", "R16, architecture 9", "two commits that changed one and the same version"},
    {"conflict-missed", "R16, R20", "two commits that wrote one record, neither of which saw the other"},
    {"insert-over-record", "architecture 9", "a committed insert of a record that was there"},
    {"update-of-nothing", "R20", "a committed change of a record that was not there"},
    {"wrong-refusal", "R3", "a commit refused for what its own snapshot showed otherwise"},
    {"ack-after-fence", "R7, R8, architecture 9", "an acknowledged commit of a transaction that was told kFenced"},
    // Scans.
    {"scan-exactly-once", "R16, R18, R23, R26, architecture 9", "a record twice, or one that must be there missing"},
    {"scan-snapshot", "R14, R23", "a row that is not what the scan's snapshot holds"},
    {"scan-sum", "R13, R23", "a sum or count that is not that of the snapshot"},
    {"scan-predicate", "R23, R24", "rows of a selection that are not those of the snapshot that match"},
    // Non-transactional tables and counters.
    {"plain-version-returned", "R21", "a version number that a record had before"},
    {"plain-lost-update", "R21", "two writes that replaced one and the same version"},
    {"plain-applied-twice", "R3, R21", "one write under two versions"},
    {"plain-refused-visible", "R21", "what a write left that was refused"},
    {"plain-stale-read", "R21", "a version that had been replaced before the read was sent"},
    {"plain-write-lost", "R21", "no trace of a write that was acknowledged and not replaced"},
    {"plain-unwritten-read", "R21", "what nobody has written"},
    {"plain-wrong-value", "R21", "another row under a version than its writer wrote, or left as it was"},
    {"plain-wrong-refusal", "R3, R21", "a conflict although nobody else has written"},
    {"counter-twice", "architecture 2", "a number of a counter given out twice"},
    {"counter-order", "architecture 2", "a number that is not above the one before of the same object"},
    // Indexes, beside what ranges by them show as scans do.
    {"index-lost-key", "R27, R28, architecture 9", "nothing, or another record, by a value that the snapshot's has"},
    {"index-phantom", "R2, R27",
     "when all is at rest, a live entry of a value in a tree that its record does not have"},
    {"index-unique", "R28, architecture 9", "two records of one value in a snapshot, where an index is unique"},
    {"index-blocked", "R27, R28", "a refusal, when all is at rest, of a value that no record has"},
    {"index-damaged", "R10, decision 0015", "kMalformed for an index of which no node can have been lost"},
    {"index-undamaged", "decision 0015", "an answer of an index that was there when the loss of a node was accepted"},
    {"index-refused", "R28, R29", "a creation refused because records were not unique, and they were"},
    {"index-gone", "R30", "kNoSuchTable for an index that nobody has dropped"},
    {"index-hits", "R27", "a change by an index of other records than a range of it shows in the same snapshot"},
    {"index-stray-node", "R31", "a node outside of an index's tree when all who made any have ended and were swept"},
    {"index-order", "R27", "records of a range in another order than the index's"},
    // Bd-trees.
    {"tree-lost-key", "R31, architecture 9", "nothing under a key of a tree that was there all the while"},
    {"tree-phantom", "R31, architecture 9", "what was never there, or not any more, under a key of a tree"},
    {"tree-answer", "R31", "an answer to the only writer of a key that contradicts what it did"},
    {"tree-order", "architecture 6", "a walk over a tree whose keys do not rise"},
    {"tree-structure", "R31", "a tree whose nodes do not fit together when nobody works on it"},
    // Tables.
    {"create-twice", "architecture 1", "two tables under one name at one time"},
    {"create-schema", "architecture 1", "a table that is not the one asked for"},
    {"create-refused", "architecture 1", "an answer that the table exists otherwise, and it does not"},
    {"table-id-twice", "R30", "one id for two tables"},
    {"table-lost", "R30", "kNoSuchTable for a table that nobody has dropped"},
    {"dropped-table-read", "R30", "data of a table after its drop was acknowledged or seen"},
    // Whatever else must not happen.
    {"set-up", "", "the first tables and rows cannot be made"},
    {"unreadable", "R4, R10", "data that cannot be read when all is mended"},
    {"unexpected-answer", "", "an answer that this call cannot have"},
    {"progress", "architecture 4", "nothing gets done although every fault is over"},
    {"structure", "R16, R17, R21", "a table's chains, pages or index do not fit together when nothing is under way"},
    {"livelock", "architecture 4", "a simulation that needs more events than any run should"},
    {"quiet", "R5, architecture 9", "something open or not recovered long after the last client has ended"},
    {"world", "", "the simulated cluster itself went wrong"},
});

}  // namespace

std::span<const Invariant> invariants() { return kInvariants; }

const Invariant* find_invariant(std::string_view name) {
  const auto* found = std::find_if(kInvariants.begin(), kInvariants.end(),
                                   [name](const Invariant& invariant) { return invariant.name == name; });
  return found == kInvariants.end() ? nullptr : found;
}

}  // namespace loam::sim
