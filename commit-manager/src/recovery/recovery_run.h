// Runs one recovery machine over the nodes.
#pragma once

#include <cstdint>
#include <memory>

#include "commit-manager/src/recovery/recovery_machine.h"
#include "commit-manager/src/recovery/recovery_node.h"
#include "common/wire/storage.h"

namespace loam::commit {

class RecoveryEngine;

/// One attempt. Owner: the engine, which is told by run_ended() and destroys it in a later round; all its requests have
/// ended then. Worker's thread only.
class RecoveryRun final : private rpc::Caller {
 public:
  RecoveryRun(RecoveryEngine& engine, QueuedTask task, std::shared_ptr<const wire::Catalog> catalog,
              bool unreadable_is_lost)
      : engine_(engine), attempts_(task.attempts), machine_(task.task, std::move(catalog), unreadable_is_lost) {}

  void start();
  void acknowledged();
  void indexes_undone(const Status& status);

  const RecoveryMachine& machine() const { return machine_; }
  uint32_t attempts() const { return attempts_; }

 private:
  Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t token, const Status& status, rpc::Executed executed) override;

  /// Sends all that the machine wants sent, and sees how far it is.
  void pump();
  Status send(const RecoveryMessage& message);

  RecoveryEngine& engine_;
  const uint32_t attempts_;
  RecoveryMachine machine_;
  bool reported_ = false;
  bool blocked_ = false;
  bool ended_ = false;
  wire::PlainReadReply read_reply_;
  wire::PlainWriteReply write_reply_;
  wire::RevertReply revert_reply_;
};

}  // namespace loam::commit
