#include "commit-manager/src/recovery/recovery_attempt.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "commit-manager/src/recovery/recovery_engine.h"
#include "commit-manager/src/recovery/recovery_node.h"
#include "common/base/env.h"

namespace loam::commit {

std::vector<Written> take_covered(std::vector<Written>& records) {
  std::sort(records.begin(), records.end(), [](const Written& a, const Written& b) {
    return a.record != b.record ? a.record < b.record : a.transaction > b.transaction;
  });
  records.erase(std::unique(records.begin(), records.end()), records.end());
  std::vector<Written> covered;
  size_t newest = 0;
  for (const Written& written : records) {
    if (newest > 0 && records[newest - 1].record == written.record) {
      covered.push_back(written);
    } else {
      records[newest++] = written;
    }
  }
  records.resize(newest);
  std::sort(records.begin(), records.end(), [](const Written& a, const Written& b) {
    return a.transaction != b.transaction ? a.transaction > b.transaction : a.record < b.record;
  });
  return covered;
}

// ---- the attempt ---------------------------------------------------------------------------------------------------

RecoveryAttempt::Part::Part(RecoveryEngine& owner, NodeId node) : engine(owner), outcome{node, {}, {}} {}

RecoveryAttempt::Part::~Part() { engine.release(held); }

RecoveryAttempt::RecoveryAttempt(RecoveryEngine& engine, const RecoveryTask& task)
    : engine_(engine), task_(task), indexes_(engine) {}

std::vector<NodeOutcome> RecoveryAttempt::run() {
  std::deque<Part> parts;
  for (const NodeId node : task_.nodes) parts.emplace_back(engine_, node);
  do {
    engine_.spread(parts.size(), [&](size_t i) { read(parts[i]); });
    Env::pause_point("recoverer.indexes_undone");
    engine_.spread(parts.size(), [&](size_t i) { revert(parts[i]); });
  } while (std::ranges::any_of(parts, &Part::more));
  std::vector<NodeOutcome> outcomes;
  outcomes.reserve(parts.size());
  for (Part& part : parts) outcomes.push_back(std::move(part.outcome));
  return outcomes;
}

void RecoveryAttempt::put_off(Part& part, NodeId by, const Status& status) {
  if (status == StatusCode::kFenced) engine_.fail(status);
  if (part.outcome.status.ok()) part.outcome = {part.outcome.node, status, by};
}

// ---- intents -------------------------------------------------------------------------------------------------------

void RecoveryAttempt::read(Part& part) {
  while (part.more) {
    const NodeId node = part.outcome.node;
    rpc::Call<wire::IntentsReply> call;
    call.send(engine_.channel(node), wire::Intents{task_.session, part.end}, engine_.request_deadline_ns());
    Status answered = engine_.outcome(node, call.wait());
    if (answered.ok()) answered = take(part, call.reply());
    if (!answered.ok()) {
      part.more = false;
      return put_off(part, node, answered);
    }
    Env::pause_point("recoverer.intents_read");
    if (engine_.holds_enough()) return;
  }
}

Status RecoveryAttempt::take(Part& part, const wire::IntentsReply& page) {
  const auto malformed = [&](std::string_view what) {
    const NodeId node = part.outcome.node;
    return engine_.outcome(node, {StatusCode::kMalformed, "storage node " + std::to_string(node.value) + " " +
                                                              std::string(what) + " when it was asked for intents"});
  };
  if (page.more && page.end <= part.end) return malformed("answered the same page again");
  engine_.count_intents(page.intents.size());
  std::vector<const wire::Intent*> changes;
  for (const wire::Intent& intent : page.intents) {
    if (!task_.undoes(intent.transaction)) continue;
    if (intent.kind == wire::Intent::Kind::kRecord) {
      part.records.push_back({intent.transaction, {intent.table, intent.record}});
    } else if (intent.kind == wire::Intent::Kind::kGive || intent.kind == wire::Intent::Kind::kTake) {
      changes.push_back(&intent);
    } else {
      return malformed("named something that is no intent");
    }
  }
  engine_.hold(part.records.size() - part.held);
  part.held = part.records.size();
  part.end = page.end;
  part.more = page.more;
  const IndexUndo::Outcome undone = indexes_.undo(changes);
  if (!undone.status.ok()) put_off(part, undone.blocked_by, undone.status);
  return ok_status();
}

// ---- records -------------------------------------------------------------------------------------------------------

void RecoveryAttempt::revert(Part& part) {
  std::vector<Written> records = std::exchange(part.records, {});
  bool answers = true;
  while (answers && !records.empty()) {
    std::vector<Written> covered = take_covered(records);
    answers = revert(part, records);
    records = std::move(covered);
  }
  part.more = part.more && answers;
  engine_.release(std::exchange(part.held, 0));
}

struct RecoveryAttempt::Sent {
  wire::Revert message;
  rpc::Call<wire::RevertReply> call;
};

bool RecoveryAttempt::revert(Part& part, const std::vector<Written>& records) {
  std::deque<Sent> sent;
  bool answers = true;
  for (auto next = records.begin(); answers && next != records.end();) {
    wire::Revert message{next->transaction, {}};
    while (next != records.end() && next->transaction == message.transaction &&
           message.records.size() < kRevertBatchRecords) {
      message.records.push_back((next++)->record);
    }
    if (sent.size() == kRevertsInFlight) {
      answers = finish(part, sent.front());
      sent.pop_front();
    }
    Sent& one = sent.emplace_back();
    one.message = std::move(message);
    one.call.send(engine_.channel(part.outcome.node), one.message, engine_.request_deadline_ns());
  }
  for (Sent& one : sent) answers = finish(part, one) && answers;
  return answers;
}

bool RecoveryAttempt::finish(Part& part, Sent& sent) {
  const NodeId node = part.outcome.node;
  const auto& records = sent.message.records;
  Status answered = engine_.outcome(node, sent.call.wait());
  const auto& results = sent.call.reply().results;
  if (answered.ok() && results.size() != records.size()) {
    answered = engine_.outcome(node, {StatusCode::kMalformed, "storage node " + std::to_string(node.value) +
                                                                  " answered another number of reverts than it had"});
  }
  if (!answered.ok()) {
    put_off(part, node, answered);
    return false;
  }
  bool answers = true;
  for (size_t i = 0; i < records.size(); ++i) {
    const StatusCode code = results[i].code;
    if (code == StatusCode::kOk || code == StatusCode::kNoSuchTable) {  // R30
      engine_.count_reverted();
      continue;
    }
    const Status refused(code, "record " + std::to_string(records[i].key.value) + " of table " +
                                   std::to_string(records[i].table.value) + " cannot be reverted for transaction " +
                                   std::to_string(sent.message.transaction.value));
    engine_.note_failure(node, refused);
    put_off(part, node, refused);
    answers = answers && !is_silence(refused);
  }
  return answers;
}

}  // namespace loam::commit
