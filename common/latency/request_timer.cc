// The delays of a client thread, and the stages of a slow request.
#include "common/latency/request_timer.h"

#include <algorithm>
#include <utility>

namespace loam::latency {

uint64_t RequestTimer::read_run_delay(uint64_t now_ns, uint64_t unseen_ns) {
  const uint64_t waited_ns = std::max(unseen_ns, run_delay_.since_last_ns());
  const uint64_t since_ns = std::exchange(run_delay_read_ns_, now_ns);
  if (waited_ns >= kLongNs) remember({Stage::kScheduling, since_ns, now_ns, waited_ns});
  return waited_ns;
}

void RequestTimer::fibers_ran(uint64_t now_ns) {
  // The fibers did not run while the thread waited for a core.
  const uint64_t ran_ns = now_ns - round_ns_;
  const uint64_t waited_ns = ran_ns >= kSlowNs ? std::min(read_run_delay(now_ns), ran_ns) : 0;
  remember({Stage::kClient, round_ns_, now_ns, ran_ns - waited_ns});
}

void RequestTimer::record_slow(OperationKind kind, uint64_t node, uint64_t sequence, uint64_t made_ns,
                               uint64_t sent_ns) {
  if (poll_ns_ - run_delay_read_ns_ >= kSlowNs) read_run_delay(poll_ns_);
  SlowOperation slow;
  slow.ended_ns = poll_ns_;
  slow.kind = kind;
  slow.session = session_;
  slow.first_sequence = slow.last_sequence = sequence;
  slow.requests = 1;
  slow.node = node;
  slow.stages[Stage::kNetwork] = poll_ns_ - made_ns;
  slow.stages.move(Stage::kNetwork, Stage::kWindow, std::max(sent_ns, made_ns) - made_ns);
  for (const Delay& delay : delays_) {
    const uint64_t from_ns = std::max(delay.begin_ns, made_ns);
    const uint64_t to_ns = std::min(delay.end_ns, poll_ns_);
    if (from_ns < to_ns) slow.stages.move(Stage::kNetwork, delay.stage, std::min(delay.ns, to_ns - from_ns));
  }
  recorder_.slow(slow);
}

}  // namespace loam::latency
