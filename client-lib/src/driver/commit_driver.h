// CommitDriver: sends the messages of a CommitMachine and reports the replies to it.
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

/// Executes one commit. The driver keeps itself alive until the machine has finished and no request is under way. The
/// committing fiber holds it, too, until it has the result. Threads: the worker thread only.
class CommitDriver final : public std::enable_shared_from_this<CommitDriver>,
                           private rpc::ResponseHandler,
                           private CompletionWaiter {
 public:
  /// Commits, and waits in the caller's fiber for the result that the application gets. The remaining steps go on
  /// without a fiber. If the session ends meanwhile, the next session asks for the outcome (R4). Counts the outcome.
  static Status commit(Engine& engine, std::shared_ptr<Session> session, CommitMachine::Context context,
                       WriteBuffer writes, std::vector<wire::IndexChange> index_changes);

  CommitDriver(Engine& engine, std::shared_ptr<Session> session, CommitMachine::Context context, WriteBuffer writes,
               std::vector<wire::IndexChange> index_changes)
      : engine_(engine),
        session_(std::move(session)),
        machine_(std::move(context), std::move(writes), std::move(index_changes)) {}

 private:
  Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t token, const Status& status, rpc::ExecutionStatus executed) override;
  void on_completed(bool refused) override;
  void on_completion_failure(const Status& status, rpc::ExecutionStatus executed) override;
  /// Reports to the machine that a request will have no reply.
  void on_no_reply(uint32_t number, const Status& status, rpc::ExecutionStatus executed);

  /// Sends all messages that the machine has ready, and checks whether the machine has finished.
  void pump();
  void send(const OutgoingMessage& out);
  void send_later(OutgoingMessage out);
  /// Waits in the committing fiber for the result, and makes the index changes meanwhile, because these need a fiber.
  void await_result();
  template <wire::Message M>
  void request(const OutgoingMessage& out, const M& message);
  void count(const Status& result);
  /// Pause points before and after the messages of a step are sent.
  void trace_phase();
  void trace_sent(bool writes, bool reverts);

  Engine& engine_;
  const std::shared_ptr<Session> session_;
  CommitMachine machine_;
  fiber::WaitPoint wakeup_;                      // wakes the committing fiber for index work or for the result
  std::optional<OutgoingMessage> index_work_{};  // for the committing fiber
  uint32_t in_flight_ = 0;                       // requests under way, including delayed ones
  bool pumping_ = false;
  CommitMachine::Phase traced_phase_ = CommitMachine::Phase::kIdle;
  bool failure_reached_ = false;
  std::shared_ptr<CommitDriver> self_;
  wire::WriteReply write_reply_;
  wire::RevertReply revert_reply_;
};

}  // namespace loam::client
