// The undo of one task at its storage nodes: reading of the intents, then reverts of the records. recovery_tree.cc
// undoes the index changes, and recovery_engine.cc decides what follows from the outcomes.
#include "commit-manager/src/recovery/recovery_attempt.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "commit-manager/src/recovery/recovery_engine.h"
#include "commit-manager/src/recovery/recovery_node.h"
#include "common/base/env.h"

namespace loam::commit {

/// Sorts by record with the newest version first, moves the first version of each record to the front, and sorts
/// these in falling order of transactions, so that one message takes the records of one transaction.
std::vector<WrittenVersion> extract_superseded(std::vector<WrittenVersion>& records) {
  std::sort(records.begin(), records.end(), [](const WrittenVersion& a, const WrittenVersion& b) {
    return a.record != b.record ? a.record < b.record : a.transaction > b.transaction;
  });
  records.erase(std::unique(records.begin(), records.end()), records.end());
  std::vector<WrittenVersion> covered;
  size_t newest = 0;
  for (const WrittenVersion& written : records) {
    if (newest > 0 && records[newest - 1].record == written.record) {
      covered.push_back(written);
    } else {
      records[newest++] = written;
    }
  }
  records.resize(newest);
  std::sort(records.begin(), records.end(), [](const WrittenVersion& a, const WrittenVersion& b) {
    return a.transaction != b.transaction ? a.transaction > b.transaction : a.record < b.record;
  });
  return covered;
}

// ---- the attempt ---------------------------------------------------------------------------------------------------

RecoveryAttempt::NodePart::NodePart(RecoveryEngine& owner, NodeId node) : engine(owner), outcome{node, {}, {}} {}

RecoveryAttempt::NodePart::~NodePart() { engine.release_records(buffered); }

RecoveryAttempt::RecoveryAttempt(RecoveryEngine& engine, const RecoveryTask& task)
    : engine_(engine), task_(task), indexes_(engine) {}

std::vector<NodeOutcome> RecoveryAttempt::run() {
  std::deque<NodePart> parts;
  for (const NodeId node : task_.nodes) parts.emplace_back(engine_, node);
  // In each round step 1 (read the intents, undo index changes) ends at all nodes before step 2 (revert records)
  // begins at any node. An index entry may lie at another node than its record, and the claimed record keeps other
  // transactions away from the entry (R27, index entries).
  do {
    engine_.parallel_for(parts.size(), [&](size_t i) { read_intents(parts[i]); });
    Env::pause_point("recoverer.indexes_undone");
    engine_.parallel_for(parts.size(), [&](size_t i) { revert(parts[i]); });
  } while (std::ranges::any_of(parts, &NodePart::more));
  std::vector<NodeOutcome> outcomes;
  outcomes.reserve(parts.size());
  for (NodePart& part : parts) outcomes.push_back(std::move(part.outcome));
  return outcomes;
}

void RecoveryAttempt::fail_part(NodePart& part, NodeId by, const Status& status) {
  // A recoverer that is fenced has a successor, which gets the same tasks. The first failure of a part is kept, because
  // later ones often follow from it.
  if (status == StatusCode::kFenced) engine_.fail(status);
  if (part.outcome.status.ok()) part.outcome = {part.outcome.node, status, by};
}

// ---- intents -------------------------------------------------------------------------------------------------------

/// Phase 1 at one node. It ends at the last page, at a failure, or when the record buffer is full; run() then
/// reverts, which empties the buffer, and comes back for the next page.
void RecoveryAttempt::read_intents(NodePart& part) {
  while (part.more) {
    const NodeId node = part.outcome.node;
    rpc::Call<wire::IntentsReply> call;
    call.send(engine_.channel(node), wire::Intents{task_.session, part.end}, engine_.request_deadline_ns());
    Status answered = engine_.record_status(node, call.wait());
    if (answered.ok()) answered = process_page(part, call.reply());
    if (!answered.ok()) {
      part.more = false;
      return fail_part(part, node, answered);
    }
    Env::pause_point("recoverer.intents_read");
    if (engine_.record_buffer_full()) return;
  }
}

Status RecoveryAttempt::process_page(NodePart& part, const wire::IntentsReply& page) {
  const auto malformed = [&](std::string_view what) {
    const NodeId node = part.outcome.node;
    return engine_.record_status(
        node, {StatusCode::kMalformed, "storage node " + std::to_string(node.value) + " " + std::string(what) +
                                           " when it was asked for intents"});
  };
  // A node that names further pages has to make progress. Otherwise the attempt would never end.
  if (page.more && page.end <= part.end) return malformed("sent the same page again");
  engine_.count_intents(page.intents.size());
  std::vector<const wire::Intent*> changes;
  for (const wire::Intent& intent : page.intents) {
    if (!task_.must_undo(intent.transaction)) continue;  // committed: a later publication lets the node drop the intent
    if (intent.kind == wire::Intent::Kind::kRecord) {
      part.records.push_back({intent.transaction, {intent.table, intent.record}});
    } else if (intent.kind == wire::Intent::Kind::kIndexInsert || intent.kind == wire::Intent::Kind::kIndexRemove) {
      changes.push_back(&intent);
    } else {
      return malformed("named an intent of an unknown kind");
    }
  }
  // The records count from here on, so that the attempts together notice a full buffer while this one waits below.
  engine_.reserve_records(part.records.size() - part.buffered);
  part.buffered = part.records.size();
  part.end = page.end;
  part.more = page.more;
  const IndexUndo::Outcome undone = indexes_.undo(changes);
  // The records are reverted all the same, and the part stays open, so the next attempt tries the index again (R27,
  // index entries).
  if (!undone.status.ok()) fail_part(part, undone.blocked_by, undone.status);
  return ok_status();
}

// ---- records -------------------------------------------------------------------------------------------------------

/// Phase 2 at one node. Each round reverts the newest version of each record and waits for the replies, so the node
/// never has to revert a version that another one covers (R8, completion by the owner, recovery after the fence).
void RecoveryAttempt::revert(NodePart& part) {
  std::vector<WrittenVersion> records = std::exchange(part.records, {});
  bool answers = true;
  while (answers && !records.empty()) {
    std::vector<WrittenVersion> covered = extract_superseded(records);
    answers = revert(part, records);
    records = std::move(covered);
  }
  part.more = part.more && answers;
  engine_.release_records(std::exchange(part.buffered, 0));
}

struct RecoveryAttempt::RevertCall {
  wire::Revert message;
  rpc::Call<wire::RevertReply> call;
};

bool RecoveryAttempt::revert(NodePart& part, const std::vector<WrittenVersion>& records) {
  // Up to kRevertsInFlight messages are under way. They name different records, so their order does not matter. At the
  // limit the fiber waits for the oldest message. A deque keeps the calls at their addresses.
  std::deque<RevertCall> sent;
  bool answers = true;
  for (auto next = records.begin(); answers && next != records.end();) {
    wire::Revert message{next->transaction, {}};
    while (next != records.end() && next->transaction == message.transaction &&
           message.records.size() < kRevertBatchRecords) {
      message.records.push_back((next++)->record);
    }
    if (sent.size() == kRevertsInFlight) {
      answers = process_revert_reply(part, sent.front());
      sent.pop_front();
    }
    RevertCall& one = sent.emplace_back();
    one.message = std::move(message);
    one.call.send(engine_.channel(part.outcome.node), one.message, engine_.request_deadline_ns());
  }
  for (RevertCall& one : sent) answers = process_revert_reply(part, one) && answers;
  return answers;
}

bool RecoveryAttempt::process_revert_reply(NodePart& part, RevertCall& sent) {
  const NodeId node = part.outcome.node;
  const auto& records = sent.message.records;
  Status answered = engine_.record_status(node, sent.call.wait());
  const auto& results = sent.call.reply().results;
  if (answered.ok() && results.size() != records.size()) {
    answered = engine_.record_status(
        node, {StatusCode::kMalformed,
               "storage node " + std::to_string(node.value) + " answered with a wrong number of results for a revert"});
  }
  if (!answered.ok()) {
    fail_part(part, node, answered);
    return false;
  }
  // kOk also means that the node has no version of this transaction, which a repeated revert finds. A refusal leaves
  // the part open, and the other records are reverted all the same (R9, leases of storage nodes).
  bool answers = true;
  for (size_t i = 0; i < records.size(); ++i) {
    const StatusCode code = results[i].code;
    if (code == StatusCode::kOk ||
        code == StatusCode::kNoSuchTable) {  // the table was dropped (R30, table creation and drop)
      engine_.count_reverted();
      continue;
    }
    const Status refused(code, "record " + std::to_string(records[i].key.value) + " of table " +
                                   std::to_string(records[i].table.value) + " cannot be reverted for transaction " +
                                   std::to_string(sent.message.transaction.value));
    engine_.note_failure(node, refused);
    fail_part(part, node, refused);
    answers = answers && !is_unavailable(refused);
  }
  return answers;
}

}  // namespace loam::commit
