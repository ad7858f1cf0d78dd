// OutcomeResolver: learns the outcomes of commits whose session has ended (R4, outcomes from the commit log).
#pragma once

#include <cstdint>
#include <vector>

#include "client-lib/src/core/commit_machine.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/fiber/wait.h"
#include "common/wire/manager.h"

namespace loam::client {

class Engine;

/// Wait between two requests about transactions that are not decided yet: kMinPollIntervalNs * 2^n, at most
/// kMaxPollIntervalNs.
inline constexpr uint64_t kMinPollIntervalNs = 2'000'000;
inline constexpr uint64_t kMaxPollIntervalNs = 100'000'000;

/// Asks the commit manager for outcomes, through the client's current session. One message serves all waiting fibers.
/// The request is repeated while the outcome is *pending*. Owner: the engine. Threads: the worker thread only.
class OutcomeResolver {
 public:
  explicit OutcomeResolver(Engine& engine) : engine_(engine) {}

  /// Returns the result of commit() for a transaction whose session ended before the reply came. `doubt`: the
  /// knowledge of its CommitMachine. `why`: the status of the session's end. In a fiber.
  ///
  ///     | doubt          | committed | aborted  | forgotten       | no reply until the deadline  |
  ///     | not committed  | kFenced, without a request                                           |
  ///     | unknown        | ok        | kFenced  | kUnknownOutcome | kUnknownOutcome              |
  ///
  /// The call does not wait for recovery. Until recovery has undone the transaction, writes of the same records get
  /// kConflict.
  Status resolve(TransactionId id, CommitMachine::Doubt doubt, const Status& why, uint64_t deadline_ns);

 private:
  struct PendingOutcome {
    TransactionId id;
    wire::Outcome outcome = wire::Outcome::kPending;
    fiber::Event answered;
  };

  wire::Outcome lookup(TransactionId id, uint64_t deadline_ns);
  /// Polls in one fiber as long as fibers wait for outcomes.
  void run();
  bool poll_pending();

  Engine& engine_;
  std::vector<PendingOutcome*> pending_;  // in the frames of the waiting fibers
  bool running_ = false;
};

}  // namespace loam::client
