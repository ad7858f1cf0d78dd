#include "client-lib/src/driver/outcomes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "client-lib/src/driver/engine.h"

namespace loam::client {

Status Outcomes::settle(TransactionId id, CommitMachine::Doubt doubt, const Status& why, uint64_t deadline_ns) {
  const std::string name = "transaction " + std::to_string(id.value);
  const std::string reason(why.message());
  Status aborted(StatusCode::kFenced, name + " was rolled back, run it again: " + reason);
  if (doubt == CommitMachine::Doubt::kNotCommitted) return aborted;
  switch (ask(id, deadline_ns)) {
    case wire::Outcome::kCommitted:
      return ok_status();
    case wire::Outcome::kAborted:
      return aborted;
    case wire::Outcome::kForgotten:
      return {StatusCode::kUnknownOutcome,
              name + " may or may not be committed, and the commit manager does not know it any more: " + reason};
    case wire::Outcome::kPending:
      break;
  }
  return {StatusCode::kUnknownOutcome,
          name + " may or may not be committed, and the commit manager did not tell in time: " + reason};
}

wire::Outcome Outcomes::ask(TransactionId id, uint64_t deadline_ns) {
  Question question{id, wire::Outcome::kPending, {}};
  questions_.push_back(&question);
  if (!running_) {
    running_ = true;
    engine_.spawn_own([this] { run(); }, [this] { running_ = false; });
  }
  if (!question.answered.wait_until(deadline_ns)) std::erase(questions_, &question);
  return question.outcome;
}

bool Outcomes::ask_all() {
  const auto session = engine_.session(engine_.request_deadline());
  if (!session.ok() || questions_.empty()) return false;
  wire::AskOutcomes message;
  const size_t count = std::min(questions_.size(), kMaxCompletions);
  for (size_t i = 0; i < count; ++i) message.ids.push_back(questions_[i]->id);
  const auto reply = (*session)->manager().ask<wire::Outcomes>(message);
  if (!reply.ok() || reply->outcomes.size() != count) return false;
  bool news = false;
  for (size_t i = 0; i < count; ++i) {
    if (reply->outcomes[i] == wire::Outcome::kPending) continue;
    // The fiber that asked may have given up meanwhile.
    const auto found = std::find_if(questions_.begin(), questions_.end(),
                                    [&](const Question* question) { return question->id == message.ids[i]; });
    if (found == questions_.end()) continue;
    news = true;
    (*found)->outcome = reply->outcomes[i];
    (*found)->answered.notify();
    questions_.erase(found);
  }
  return news;
}

void Outcomes::run() {
  uint64_t wait_ns = kFirstAskAgainNs;
  while (!questions_.empty() && !engine_.closing()) {
    if (ask_all()) wait_ns = kFirstAskAgainNs;
    if (questions_.empty()) break;
    // Those that are pending go behind those that were not asked for.
    std::rotate(questions_.begin(),
                questions_.begin() + static_cast<ptrdiff_t>(std::min(questions_.size(), kMaxCompletions)),
                questions_.end());
    engine_.worker().scheduler().sleep_for(wait_ns);
    wait_ns = std::min(2 * wait_ns, kMaxAskAgainNs);
  }
  running_ = false;
}

}  // namespace loam::client
