// Asks for outcomes: one background fiber polls for all waiting fibers. commit_driver.cc calls resolve().
#include "client-lib/src/driver/outcome_resolver.h"

#include <algorithm>
#include <string>
#include <utility>

#include "client-lib/src/driver/engine.h"

namespace loam::client {

Status OutcomeResolver::resolve(TransactionId id, CommitMachine::Doubt doubt, const Status& why, uint64_t deadline_ns) {
  const std::string name = "transaction " + std::to_string(id.value);
  const std::string reason(why.message());
  Status aborted(StatusCode::kFenced, name + " was rolled back, run it again: " + reason);
  if (doubt == CommitMachine::Doubt::kNotCommitted) return aborted;
  switch (lookup(id, deadline_ns)) {
    case wire::Outcome::kCommitted:
      return ok_status();
    case wire::Outcome::kAborted:
      return aborted;
    case wire::Outcome::kForgotten:
      return {StatusCode::kUnknownOutcome,
              name + " may or may not be committed, and the commit manager has forgotten its outcome: " + reason};
    case wire::Outcome::kPending:
      break;
  }
  return {StatusCode::kUnknownOutcome,
          name + " may or may not be committed, and the commit manager did not answer in time: " + reason};
}

wire::Outcome OutcomeResolver::lookup(TransactionId id, uint64_t deadline_ns) {
  PendingOutcome pending{id, wire::Outcome::kPending, {}};
  pending_.push_back(&pending);
  // One poller serves all fibers. If there is no free fiber for it, this call waits until another call starts it or
  // the deadline passes; the outcome is then unknown.
  if (!running_) {
    running_ = true;
    engine_.spawn_background([this] { run(); }, [this] { running_ = false; });
  }
  if (!pending.answered.wait_until(deadline_ns)) std::erase(pending_, &pending);
  return pending.outcome;
}

bool OutcomeResolver::poll_pending() {
  const auto session = engine_.session(engine_.request_deadline());
  if (!session.ok() || pending_.empty()) return false;
  wire::GetOutcomes message;
  // The ids are copied, because fibers may leave pending_ while the request is under way.
  const size_t count = std::min(pending_.size(), kMaxCompletions);
  for (size_t i = 0; i < count; ++i) message.ids.push_back(pending_[i]->id);
  const auto reply = (*session)->manager().call<wire::GetOutcomesReply>(message);
  if (!reply.ok() || reply->outcomes.size() != count) return false;
  bool news = false;
  for (size_t i = 0; i < count; ++i) {
    if (reply->outcomes[i] == wire::Outcome::kPending) continue;
    // The fiber may have stopped waiting meanwhile.
    const auto found = std::find_if(pending_.begin(), pending_.end(),
                                    [&](const PendingOutcome* pending) { return pending->id == message.ids[i]; });
    if (found == pending_.end()) continue;
    news = true;
    (*found)->outcome = reply->outcomes[i];
    (*found)->answered.notify();
    pending_.erase(found);
  }
  return news;
}

void OutcomeResolver::run() {
  uint64_t wait_ns = kMinPollIntervalNs;
  while (!pending_.empty() && !engine_.closing()) {
    if (poll_pending()) wait_ns = kMinPollIntervalNs;
    if (pending_.empty()) break;
    // Pending transactions go to the end of the queue, behind those that the last message had no room for.
    std::rotate(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(std::min(pending_.size(), kMaxCompletions)),
                pending_.end());
    engine_.worker().scheduler().sleep_for(wait_ns);
    wait_ns = std::min(2 * wait_ns, kMaxPollIntervalNs);
  }
  running_ = false;
}

}  // namespace loam::client
