// What became of the commits of sessions that have ended [protocol R4].
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

/// Between two questions about transactions that are not decided yet: kFirstAskAgainNs * 2^n, at most kMaxAskAgainNs.
inline constexpr uint64_t kFirstAskAgainNs = 2'000'000;
inline constexpr uint64_t kMaxAskAgainNs = 100'000'000;

/// Asks the commit manager, through the session that the client has now, for all fibers in one message, and again
/// while it answers *pending*. Owner: the engine; worker's thread only.
class Outcomes {
 public:
  explicit Outcomes(Engine& engine) : engine_(engine) {}

  /// In a fiber: what commit() returns for a transaction whose session ended before it had an answer. `doubt` is what
  /// its machine knew, `why` how the session ended.
  ///
  ///     | doubt          | committed | aborted  | forgotten       | no answer until the deadline |
  ///     | not committed  | kFenced, without a question                                          |
  ///     | unknown        | ok        | kFenced  | kUnknownOutcome | kUnknownOutcome              |
  ///
  /// It does not wait for recovery: until that has undone what the transaction wrote, writes of the same records get
  /// kConflict.
  Status settle(TransactionId id, CommitMachine::Doubt doubt, const Status& why, uint64_t deadline_ns);

 private:
  struct Question {
    TransactionId id;
    wire::Outcome outcome = wire::Outcome::kPending;
    fiber::Event answered;
  };

  wire::Outcome ask(TransactionId id, uint64_t deadline_ns);
  /// One fiber, while there are questions.
  void run();
  bool ask_all();

  Engine& engine_;
  std::vector<Question*> questions_;  // in the frames of the waiting fibers
  bool running_ = false;
};

}  // namespace loam::client
