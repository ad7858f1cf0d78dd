// Runs a commit machine over the channels.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "client-lib/src/core/commit_machine.h"
#include "client-lib/src/driver/engine.h"
#include "client-lib/src/driver/manager_session.h"
#include "common/fiber/wait.h"
#include "common/rpc/channel.h"

namespace loam::client {

/// One commit. Owns itself from start() until the machine has finished and nothing of it is under way; the fiber that
/// commits holds it too, until it has the result. Worker's thread only.
class CommitRun final : public std::enable_shared_from_this<CommitRun>, private rpc::Caller, private CompletionWaiter {
 public:
  /// Commits, and waits in the caller's fiber for the answer that the application gets. The remaining steps go on
  /// without a fiber. If the session ends meanwhile, the next session asks for the outcome (R4). Counts the outcome.
  static Status commit(Engine& engine, std::shared_ptr<Session> session, CommitMachine::Context context,
                       WriteBuffer writes, std::vector<wire::IndexChange> index_changes);

  CommitRun(Engine& engine, std::shared_ptr<Session> session, CommitMachine::Context context, WriteBuffer writes,
            std::vector<wire::IndexChange> index_changes)
      : engine_(engine),
        session_(std::move(session)),
        machine_(std::move(context), std::move(writes), std::move(index_changes)) {}

 private:
  Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t token, const Status& status, rpc::Executed executed) override;
  void on_completed(bool refused) override;
  void on_completion_failure(const Status& status, rpc::Executed executed) override;
  /// A request of the machine has no answer.
  void end_without_answer(uint32_t number, const Status& status, rpc::Executed executed);

  /// Sends all that the machine wants sent, and sees whether it is done.
  void pump();
  void send(const Outgoing& out);
  void send_later(Outgoing out);
  /// In the committing fiber, until the result is there: works on indexes meanwhile, which takes a fiber.
  void await_result();
  template <wire::Message M>
  void request(const Outgoing& out, const M& message);
  void count(const Status& result);
  /// Pause points of what has just happened: before and after what follows from it is sent.
  void reached();
  void sent(bool writes, bool reverts);

  Engine& engine_;
  const std::shared_ptr<Session> session_;
  CommitMachine machine_;
  fiber::WaitPoint woken_;                // the committing fiber: for work, or with the result
  std::optional<Outgoing> index_work_{};  // that it is to do
  uint32_t open_ = 0;                     // requests under way, delayed ones included
  bool pumping_ = false;
  CommitMachine::Phase reached_ = CommitMachine::Phase::kIdle;
  bool failure_reached_ = false;
  std::shared_ptr<CommitRun> self_;
  wire::WriteReply write_reply_;
  wire::RevertReply revert_reply_;
};

}  // namespace loam::client
