#include "client-lib/src/driver/commit_run.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "common/base/env.h"
#ifdef LOAM_ASSERTIONS
#include "common/base/pause_point.h"
#endif

namespace loam::client {

using Phase = CommitMachine::Phase;

Status CommitRun::commit(Engine& engine, std::shared_ptr<Session> session, CommitMachine::Context context,
                         WriteBuffer writes, std::vector<wire::IndexChange> index_changes) {
  const TransactionId id = context.id;
  auto run = std::make_shared<CommitRun>(engine, std::move(session), std::move(context), std::move(writes),
                                         std::move(index_changes));
  engine.run_started();
  run->self_ = run;
  run->machine_.start();
  run->pump();
  run->await_result();
  Status result = *run->machine_.result();
  if (run->machine_.doubt() != CommitMachine::Doubt::kNone) {
    result = engine.outcomes().settle(id, run->machine_.doubt(), result, engine.commit_deadline());
    const bool asked = run->machine_.doubt() == CommitMachine::Doubt::kUnknown;
    if (asked && result != StatusCode::kUnknownOutcome) engine.counters().resolved.add(1);
  }
  run->count(result);
  Env::pause_point("client.commit.answered");
  return result;
}

void CommitRun::reached() {
  if (machine_.failed() && machine_.phase() != Phase::kOver && !std::exchange(failure_reached_, true)) {
    Env::pause_point("client.abort.failed");
  }
  const Phase phase = machine_.phase();
  const Phase before = std::exchange(reached_, phase);
  if (phase == before) return;
  if (phase == Phase::kWrite) Env::pause_point("client.commit.begun");
  const bool goes_on = !machine_.failed() && (phase == Phase::kIndex || phase == Phase::kComplete);
  if (before == Phase::kWrite && goes_on) Env::pause_point("client.commit.writes_applied");
  if (before == Phase::kIndex && goes_on) Env::pause_point("client.commit.indexed");
  if (before == Phase::kUndoIndex && phase == Phase::kUndo) Env::pause_point("client.abort.index_undone");
  if (phase == Phase::kUndo) Env::pause_point("client.abort.undo_decided");
  if (phase == Phase::kComplete && before == Phase::kUndo) Env::pause_point("client.abort.reverted");
  if (before == Phase::kComplete && phase == Phase::kOver && !machine_.session_given_up()) {
    Env::pause_point(machine_.committed() ? "client.commit.completed" : "client.abort.completed");
  }
}

void CommitRun::sent(bool writes, bool reverts) {
  if (!writes && !reverts) return;
#ifdef LOAM_ASSERTIONS
  if (PausePoints::armed()) session_->flush();  // what a process that is stopped here has sent must have left it
#endif
  Env::pause_point(writes ? "client.commit.writes_sent" : "client.abort.reverts_sent");
}

void CommitRun::count(const Status& result) {
  EngineCounters& counters = engine_.counters();
  if (result.ok()) {
    counters.committed.add(1);
  } else if (result.code() == StatusCode::kUnknownOutcome) {
    counters.unknown_outcomes.add(1);
  } else {
    counters.aborted.add(1);
    if (result.code() == StatusCode::kWrongShard) engine_.refresh_soon();
    if (machine_.conflicted()) counters.conflicts.add(1);
  }
}

void CommitRun::pump() {
  if (pumping_) return;  // called back by what send() found out; the loop below goes on
  pumping_ = true;
  const bool waited = open_ > 0;
  reached();
  bool writes = false, reverts = false;
  Outgoing out;
  while (machine_.next(out)) {
    writes |= std::holds_alternative<wire::Write>(out.message);
    reverts |= std::holds_alternative<wire::Revert>(out.message);
    if (std::holds_alternative<IndexWork>(out.message)) {
      ++open_;
      index_work_ = std::move(out);
      woken_.notify();
      continue;
    }
    if (out.delay_ns != 0) {
      send_later(std::move(out));
      continue;
    }
    send(out);
    reached();
  }
  sent(writes, reverts);
  pumping_ = false;
  const bool known = machine_.result().has_value();
  if (!waited && open_ > 0 && !known) engine_.counters().round_trips.add(1);
  if (machine_.session_given_up()) session_->give_up(*machine_.result());
  if (known) woken_.notify();
  if (machine_.finished() && open_ == 0 && self_ != nullptr) {
    engine_.run_ended();
    self_.reset();  // may be the end of this object
  }
}

void CommitRun::send_later(Outgoing out) {
  // Repetitions are rare: a fiber each is cheap enough.
  ++open_;
  auto later = std::make_shared<Outgoing>(std::move(out));
  const Status spawned = engine_.worker().scheduler().spawn([this, later] {
    engine_.worker().scheduler().sleep_for(later->delay_ns);
    --open_;
    send(*later);
    pump();
  });
  if (spawned.ok()) return;
  --open_;
  send(*later);
}

void CommitRun::send(const Outgoing& out) {
  if (!session_->status().ok()) return machine_.abandon(session_->status());
  std::visit(
      [&](const auto& message) {
        using M = std::decay_t<decltype(message)>;
        if constexpr (std::is_same_v<M, wire::Complete>) {
          ++open_;
          session_->manager().complete(message.outcomes[0].id, message.outcomes[0].committed, this);
        } else if constexpr (!std::is_same_v<M, IndexWork>) {
          request(out, message);
        }
      },
      out.message);
}

void CommitRun::await_result() {
  for (;;) {
    if (auto work = std::exchange(index_work_, std::nullopt)) {
      if (work->delay_ns != 0) engine_.worker().scheduler().sleep_for(work->delay_ns);
      const bool undo = std::get<IndexWork>(work->message).undo;
      Status done = session_->status();
      if (done.ok()) {
        done = engine_.index_writer().change(session_, machine_.context(), machine_.index_changes(), undo);
        machine_.on_indexed(done);
      } else {
        machine_.abandon(done);
      }
      --open_;
      pump();
    } else if (machine_.result().has_value()) {
      return;
    } else {
      woken_.wait();
    }
  }
}

template <wire::Message M>
void CommitRun::request(const Outgoing& out, const M& message) {
  const auto channel = session_->node(out.node);
  if (!channel.ok()) return machine_.on_refused(out.token, channel.status());
  const auto sent = (*channel)->request(message, this, out.token, engine_.commit_deadline());
  if (!sent.ok()) return machine_.on_refused(out.token, sent.status());
  ++open_;
}

Status CommitRun::on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  const auto self = shared_from_this();
  const auto number = static_cast<uint32_t>(token);
  if (opcode == wire::Opcode::kWriteReply) {
    LOAM_RETURN_IF_ERROR(wire::decode_body(body, write_reply_));
    machine_.on_answer(number, write_reply_.results, write_reply_.detail);
  } else if (opcode == wire::Opcode::kRevertReply) {
    LOAM_RETURN_IF_ERROR(wire::decode_body(body, revert_reply_));
    machine_.on_answer(number, revert_reply_.results, {});
  } else {
    return rpc::unexpected_reply(opcode);
  }
  --open_;
  pump();
  return ok_status();
}

void CommitRun::on_failure(uint64_t token, const Status& status, rpc::Executed executed) {
  end_without_answer(static_cast<uint32_t>(token), status, executed);
}

void CommitRun::end_without_answer(uint32_t number, const Status& status, rpc::Executed executed) {
  const auto self = shared_from_this();
  --open_;
  if (rpc::has_no_effect(executed)) {
    machine_.on_refused(number, status);
  } else {
    machine_.on_lost(number, status);
  }
  pump();
}

void CommitRun::on_completed(bool refused) {
  const auto self = shared_from_this();
  --open_;
  machine_.on_completed(refused);
  pump();
}

void CommitRun::on_completion_failure(const Status& status, rpc::Executed executed) {
  end_without_answer(0, status, executed);
}

}  // namespace loam::client
