// Runs a commit machine on the worker thread: sends its messages, reports the replies, and makes the index changes in
// the committing fiber. commit_machine.cc has the order of the steps.
#include "client-lib/src/driver/commit_driver.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "common/base/env.h"
#ifdef LOAM_ASSERTIONS
#include "common/base/pause_point.h"
#endif

namespace loam::client {

using Phase = CommitMachine::Phase;

Status CommitDriver::commit(Engine& engine, std::shared_ptr<Session> session, CommitMachine::Context context,
                            WriteBuffer writes, std::vector<wire::IndexChange> index_changes) {
  const TransactionId id = context.id;
  auto run = std::make_shared<CommitDriver>(engine, std::move(session), std::move(context), std::move(writes),
                                            std::move(index_changes));
  // Phase 1: run the machine until the application's result is known. The object keeps itself alive (self_), because
  // requests may be under way when the caller has its result.
  engine.commit_started();
  run->self_ = run;
  run->machine_.start();
  run->pump();
  run->await_result();
  Status result = *run->machine_.result();
  // Phase 2: if the machine was given up before it had a final result, the commit log decides (R4, outcomes from the
  // commit log). The question goes through the next session.
  if (run->machine_.doubt() != CommitMachine::Doubt::kNone) {
    result = engine.outcome_resolver().resolve(id, run->machine_.doubt(), result, engine.commit_deadline());
    const bool asked = run->machine_.doubt() == CommitMachine::Doubt::kUnknown;
    if (asked && result != StatusCode::kUnknownOutcome) engine.counters().resolved.add(1);
  }
  run->count(result);
  Env::pause_point("client.commit.answered");
  return result;
}

// Pause points at the transitions of the machine. Tests stop or kill the client at each of them.
void CommitDriver::trace_phase() {
  if (machine_.failed() && machine_.phase() != Phase::kDone && !std::exchange(failure_reached_, true)) {
    Env::pause_point("client.abort.failed");
  }
  const Phase phase = machine_.phase();
  const Phase before = std::exchange(traced_phase_, phase);
  if (phase == before) return;
  if (phase == Phase::kWrite) Env::pause_point("client.commit.begun");
  const bool goes_on = !machine_.failed() && (phase == Phase::kIndex || phase == Phase::kComplete);
  if (before == Phase::kWrite && goes_on) Env::pause_point("client.commit.writes_applied");
  if (before == Phase::kIndex && goes_on) Env::pause_point("client.commit.indexed");
  if (before == Phase::kUndoIndex && phase == Phase::kUndo) Env::pause_point("client.abort.index_undone");
  if (phase == Phase::kUndo) Env::pause_point("client.abort.undo_decided");
  if (phase == Phase::kComplete && before == Phase::kUndo) Env::pause_point("client.abort.reverted");
  if (before == Phase::kComplete && phase == Phase::kDone && !machine_.session_given_up()) {
    Env::pause_point(machine_.committed() ? "client.commit.completed" : "client.abort.completed");
  }
}

void CommitDriver::trace_sent(bool writes, bool reverts) {
  if (!writes && !reverts) return;
#ifdef LOAM_ASSERTIONS
  if (PausePoints::armed()) session_->flush();  // messages must have left the process before a test stops it here
#endif
  Env::pause_point(writes ? "client.commit.writes_sent" : "client.abort.reverts_sent");
}

void CommitDriver::count(const Status& result) {
  EngineCounters& counters = engine_.counters();
  if (result.ok()) {
    counters.committed.add(1);
  } else if (result.code() == StatusCode::kUnknownOutcome) {
    counters.unknown_outcomes.add(1);
  } else {
    counters.aborted.add(1);
    // The client's shard map is outdated; the next attempt needs the current one.
    if (result.code() == StatusCode::kWrongShard) engine_.refresh_catalog_async();
    if (machine_.conflicted()) counters.conflicts.add(1);
  }
}

void CommitDriver::pump() {
  if (pumping_) return;  // called from within send(); the loop below continues
  pumping_ = true;
  const bool waited = in_flight_ > 0;
  trace_phase();
  bool writes = false, reverts = false;
  OutgoingMessage out;
  while (machine_.next(out)) {
    writes |= std::holds_alternative<wire::Write>(out.message);
    reverts |= std::holds_alternative<wire::Revert>(out.message);
    // Index changes suspend, and this function also runs in the poll loop, outside of a fiber. So the committing fiber
    // makes them (await_result()).
    if (std::holds_alternative<IndexWork>(out.message)) {
      ++in_flight_;
      index_work_ = std::move(out);
      wakeup_.notify();
      continue;
    }
    if (out.delay_ns != 0) {
      send_later(std::move(out));
      continue;
    }
    send(out);
    trace_phase();
  }
  trace_sent(writes, reverts);
  pumping_ = false;
  const bool known = machine_.result().has_value();
  // A round trip begins when requests are under way and before there were none.
  if (!waited && in_flight_ > 0 && !known) engine_.counters().round_trips.add(1);
  // The session ends before the committing fiber wakes up, so that this fiber asks for the outcome under the next one.
  if (machine_.session_given_up()) session_->give_up(*machine_.result());
  if (known) wakeup_.notify();
  if (machine_.finished() && in_flight_ == 0 && self_ != nullptr) {
    engine_.commit_ended();
    self_.reset();  // may destroy this object
  }
}

void CommitDriver::send_later(OutgoingMessage out) {
  // Retries are rare, so a fiber for each is cheap enough.
  ++in_flight_;
  auto later = std::make_shared<OutgoingMessage>(std::move(out));
  const Status spawned = engine_.worker().scheduler().spawn([this, later] {
    engine_.worker().scheduler().sleep_for(later->delay_ns);
    --in_flight_;
    send(*later);
    pump();
  });
  if (spawned.ok()) return;
  // Without a free fiber the retry goes out at once. kMaxStepRetries still bounds the retries.
  --in_flight_;
  send(*later);
}

void CommitDriver::send(const OutgoingMessage& out) {
  // An ended session sends nothing more. Recovery does the remaining steps.
  if (!session_->status().ok()) return machine_.abandon(session_->status());
  std::visit(
      [&](const auto& message) {
        using M = std::decay_t<decltype(message)>;
        if constexpr (std::is_same_v<M, wire::Complete>) {
          ++in_flight_;
          session_->manager().complete(message.outcomes[0].id, message.outcomes[0].committed, this);
        } else if constexpr (!std::is_same_v<M, IndexWork>) {
          request(out, message);
        }
      },
      out.message);
}

void CommitDriver::await_result() {
  for (;;) {
    if (auto work = std::exchange(index_work_, std::nullopt)) {
      // The work counts as under way (in_flight_) until its result is reported, so the object stays alive.
      if (work->delay_ns != 0) engine_.worker().scheduler().sleep_for(work->delay_ns);
      const bool undo = std::get<IndexWork>(work->message).undo;
      Status done = session_->status();
      if (done.ok()) {
        done = engine_.index_writer().change(session_, machine_.context(), machine_.index_changes(), undo);
        machine_.on_index_result(done);
      } else {
        machine_.abandon(done);
      }
      --in_flight_;
      pump();
    } else if (machine_.result().has_value()) {
      return;
    } else {
      wakeup_.wait();
    }
  }
}

template <wire::Message M>
void CommitDriver::request(const OutgoingMessage& out, const M& message) {
  const auto channel = session_->node(out.node);
  if (!channel.ok()) return machine_.on_refused(out.token, channel.status());
  const auto sent = (*channel)->request(message, this, out.token, engine_.commit_deadline());
  if (!sent.ok()) return machine_.on_refused(out.token, sent.status());
  ++in_flight_;
}

Status CommitDriver::on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  const auto self = shared_from_this();
  const auto number = static_cast<uint32_t>(token);
  if (opcode == wire::Opcode::kWriteReply) {
    LOAM_RETURN_IF_ERROR(wire::decode_body(body, write_reply_));
    machine_.on_reply(number, write_reply_.results, write_reply_.detail);
  } else if (opcode == wire::Opcode::kRevertReply) {
    LOAM_RETURN_IF_ERROR(wire::decode_body(body, revert_reply_));
    machine_.on_reply(number, revert_reply_.results, {});
  } else {
    return rpc::unexpected_reply(opcode);
  }
  --in_flight_;
  pump();
  return ok_status();
}

void CommitDriver::on_failure(uint64_t token, const Status& status, rpc::ExecutionStatus executed) {
  on_no_reply(static_cast<uint32_t>(token), status, executed);
}

void CommitDriver::on_no_reply(uint32_t number, const Status& status, rpc::ExecutionStatus executed) {
  const auto self = shared_from_this();
  --in_flight_;
  if (rpc::has_no_effect(executed)) {
    machine_.on_refused(number, status);
  } else {
    machine_.on_lost(number, status);
  }
  pump();
}

void CommitDriver::on_completed(bool refused) {
  const auto self = shared_from_this();
  --in_flight_;
  machine_.on_completed(refused);
  pump();
}

void CommitDriver::on_completion_failure(const Status& status, rpc::ExecutionStatus executed) {
  // The machine has at most one completion under way, so its token does not matter.
  on_no_reply(0, status, executed);
}

}  // namespace loam::client
