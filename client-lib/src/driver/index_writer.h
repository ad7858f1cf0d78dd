// IndexWriter: the interface by which a commit changes indexes, which a higher layer implements.
#pragma once

#include <memory>
#include <span>

#include "client-lib/src/core/commit_machine.h"
#include "client-lib/src/driver/session.h"
#include "common/base/status.h"
#include "common/wire/index_change.h"

namespace loam::client {

/// Makes or undoes the index changes of transactions (R27, index entries). Any number of transactions may use it at
/// once.
class IndexWriter {
 public:
  /// Makes the changes, or undoes them. Writes under `session` only, the transaction's own. The call may be repeated,
  /// and changes that were not made may be undone. In a fiber. kAlreadyExists: another record has the value in a
  /// unique index; kConflict: another transaction has just given or taken the value; kUnknownOutcome: the reply to a
  /// write was lost; kFenced, kOverloaded, kNoSpace, kUnavailable, kTimeout.
  virtual Status change(const std::shared_ptr<Session>& session, const CommitMachine::Context& transaction,
                        std::span<const wire::IndexChange> changes, bool undo) = 0;

 protected:
  ~IndexWriter() = default;
};

}  // namespace loam::client
