// Begin of a round, end of a batch, and the record of a slow one.
#include "common/latency/batch_timer.h"

#include <algorithm>
#include <utility>

#include "common/latency/stage_timer.h"

namespace loam::latency {
namespace {

/// If a round begins within this time after the end of the last batch, the poll did not block: its requests had arrived
/// before, while the last round was executed.
constexpr uint64_t kNoWaitNs = 50'000;

}  // namespace

void BatchTimer::start_round(uint64_t now_ns) {
  first_of_round_ = false;
  const uint64_t last_round_ns = last_end_ns_ - round_ns_;
  const uint64_t awake_ns = now_ns - last_end_ns_ - std::min(slept_ns_, now_ns - last_end_ns_);
  before_ = std::exchange(next_before_, {});
  before_ns_ = std::exchange(slept_ns_, 0);
  round_ns_ = now_ns;
  const uint64_t unseen_ns = unseen_ns_at(now_ns, *last_look_ns_);
  if (unseen_ns != 0 || now_ns - run_delay_read_ns_ >= kReadEveryNs) {
    const uint64_t waited_ns = std::max(unseen_ns, read_run_delay(now_ns));
    before_[Stage::kScheduling] = std::min(waited_ns, awake_ns);
    before_ns_ += before_[Stage::kScheduling];
  }
  if (last_round_ns >= kSlowNs && awake_ns < kNoWaitNs) {
    before_[Stage::kQueue] = last_round_ns;
    before_ns_ += last_round_ns;
  }
}

void BatchTimer::finish() {
  RareStages& rare = RareStages::of_thread();
  if (requests_ != 0) {
    const uint64_t latency_ns = mark_ns_ - round_ns_;
    recorder_.operation(first_kind_, latency_ns, requests_ - other_requests_);
    if (other_requests_ != 0) record_others(latency_ns);
    recorder_.stage(Stage::kQueue, began_ns_ - round_ns_);
    recorder_.stage(Stage::kExecution, times_[Stage::kExecution]);
    recorder_.stage(Stage::kAnswer, times_[Stage::kAnswer]);
    if (latency_ns + before_ns_ >= kSlowNs) record_slow(rare.times);
  }
  // Also without a request: the rare stages of this batch are none of the next one's.
  if (rare.any) rare = {};
}

void BatchTimer::record_others(uint64_t latency_ns) {
  for (size_t kind = 0; kind < kOperationKinds; ++kind) {
    if (others_[kind] == 0) continue;
    recorder_.operation(static_cast<OperationKind>(kind), latency_ns, std::exchange(others_[kind], 0));
  }
}

void BatchTimer::record_slow(const StageTimes& rare) {
  SlowOperation slow;
  slow.ended_ns = mark_ns_;
  slow.kind = first_kind_;
  slow.session = session_;
  slow.first_sequence = first_sequence_;
  slow.last_sequence = last_sequence_;
  slow.requests = requests_;
  slow.stages = before_;
  slow.stages[Stage::kQueue] += began_ns_ - round_ns_;
  slow.stages[Stage::kExecution] = times_[Stage::kExecution];
  slow.stages[Stage::kAnswer] = times_[Stage::kAnswer];
  for (size_t i = 0; i < kStages; ++i) {
    slow.stages.move(Stage::kExecution, static_cast<Stage>(i), rare[static_cast<Stage>(i)]);
  }
  // The thread may have waited for a core within the batch. A short batch did not.
  if (mark_ns_ - began_ns_ >= kSlowNs) {
    const uint64_t waited_ns = read_run_delay(mark_ns_);
    const uint64_t in_execution_ns = std::min(waited_ns, slow.stages[Stage::kExecution]);
    slow.stages.move(Stage::kExecution, Stage::kScheduling, in_execution_ns);
    slow.stages.move(Stage::kAnswer, Stage::kScheduling, waited_ns - in_execution_ns);
  }
  recorder_.slow(slow);
}

void BatchTimer::record_late(OperationKind kind, uint64_t session, uint64_t sequence, Stage stage,
                             const Arrival& arrival, uint64_t latency_ns, uint64_t now_ns) {
  SlowOperation slow;
  slow.ended_ns = now_ns;
  slow.kind = kind;
  slow.session = session;
  slow.first_sequence = slow.last_sequence = sequence;
  slow.requests = 1;
  slow.stages[stage] = latency_ns;
  // If this thread itself waited for a core, the answers that are due now have waited for that.
  if (now_ns != run_delay_read_ns_) late_waited_ns_ = read_run_delay(now_ns);
  slow.stages.move(stage, Stage::kScheduling, late_waited_ns_);
  slow.stages[arrival.before] += arrival.before_ns;
  recorder_.slow(slow);
}

}  // namespace loam::latency
