// How a commit changes indexes, seen from below.
#pragma once

#include <memory>
#include <span>

#include "client-lib/src/core/commit_machine.h"
#include "client-lib/src/driver/session.h"
#include "common/base/status.h"
#include "common/wire/index_change.h"

namespace loam::client {

/// Makes the index changes of a transaction, or undoes them (R27). Any number of transactions at once.
class IndexWriter {
 public:
  /// In a fiber. Writes as `session`, the transaction's own, alone. Repeating it is harmless, and so is undoing what
  /// was not made. kAlreadyExists: another record has the value in a unique index; kConflict: another transaction has
  /// just given or taken it; kUnknownOutcome: a write's answer was lost; kFenced; kOverloaded, kNoSpace, kUnavailable,
  /// kTimeout.
  virtual Status change(const std::shared_ptr<Session>& session, const CommitMachine::Context& transaction,
                        std::span<const wire::IndexChange> changes, bool undo) = 0;

 protected:
  ~IndexWriter() = default;
};

}  // namespace loam::client
