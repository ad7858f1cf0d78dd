// Times the batches that a polling server thread executes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "common/base/env.h"
#include "common/latency/recorder.h"
#include "common/latency/run_delay.h"

namespace loam::latency {

/// Times the batches of one polling server thread by stages, and records them.
///
/// A round of the thread is one poll of the network with the batches that arrive in it. A batch is the requests of one
/// frame. The latency of a request is the time from the first batch of its round to the end of its own batch. A slow
/// batch is recorded with its stages. It also has the stages before its round, during which its requests may have
/// waited: the thread slept, waited for a core, or executed a long round. If the hypervisor takes the core away, Linux
/// counts no wait; the time since the last look of a spinning poll shows it. These are upper bounds, because a server
/// does not know when a request arrived.
///
/// Cost: two readings of the clock a batch, and a few additions a request. Nothing is timed in the simulator, whose
/// schedule must not depend on timers.
///
/// Owner and threads: the server thread.
class BatchTimer {
 public:
  /// `recorder` outlives the timer.
  explicit BatchTimer(Recorder& recorder) : recorder_(recorder) {}

  /// Sets where the transport tells its last look for events (net::Transport::last_look_ns()).
  void watch(const uint64_t& last_look_ns) { last_look_ns_ = &last_look_ns; }

  /// A round begins: the thread polls the network next.
  void begin_round() { first_of_round_ = true; }
  /// The poll has ended without an event. Waits for a core up to now belong to no request.
  void idle() {
    if constexpr (Env::kSimulated) return;
    // Another thread may wake the poll thousands of times a second, and a reading is a system call.
    const uint64_t now_ns = Env::now_ns();
    if (now_ns - run_delay_read_ns_ >= kReadEveryNs) read_run_delay(now_ns);
  }
  /// The thread has slept for `ns` since the last round.
  void slept(Stage stage, uint64_t ns) {
    next_before_[stage] += ns;
    slept_ns_ += ns;
  }

  /// A batch begins at `now_ns`.
  void begin(uint64_t now_ns) {
    if constexpr (Env::kSimulated) return;
    if (first_of_round_) start_round(now_ns);
    began_ns_ = mark_ns_ = now_ns;
    requests_ = other_requests_ = 0;
  }
  /// The batch has a request of this session; 0: of no session. All requests of a batch have the same session.
  void request(OperationKind kind, uint64_t session, uint64_t sequence) {
    if (requests_++ == 0) {
      first_kind_ = kind;
      first_sequence_ = sequence;
      session_ = session;
    } else if (kind != first_kind_) {
      ++other_requests_;
      ++others_[static_cast<size_t>(kind)];
    }
    last_sequence_ = sequence;
  }
  /// Everything since the last mark belongs to this stage.
  void mark(Stage stage) {
    if constexpr (Env::kSimulated) return;
    const uint64_t now_ns = Env::now_ns();
    times_[stage] += now_ns - mark_ns_;
    mark_ns_ = now_ns;
  }
  /// The batch ends, at the last mark.
  void end() {
    if constexpr (Env::kSimulated) return;
    finish();
    times_ = {};
    last_end_ns_ = mark_ns_;
  }

  /// When a request came that is answered after its batch, and for what it may have waited before.
  struct Arrival {
    uint64_t round_ns = 0;              ///< begin of its round
    uint64_t before_ns = 0;             ///< the longest stage before the round
    Stage before = Stage::kScheduling;  ///< that stage
  };
  /// Returns the arrival of the requests of the present batch, for answered_late().
  Arrival arrival() const {
    const Stage before = before_.longest();
    return {round_ns_, before_[before], before};
  }
  /// Returns the time for answered_late(), once for all requests that are answered together.
  static uint64_t late_ns() { return Env::kSimulated ? 0 : Env::now_ns(); }
  /// A request of an earlier batch is answered at `now_ns`. It has waited in `stage` since the begin of its round.
  void answered_late(OperationKind kind, uint64_t session, uint64_t sequence, Stage stage, const Arrival& arrival,
                     uint64_t now_ns) {
    if constexpr (Env::kSimulated) return;
    const uint64_t latency_ns = now_ns - std::min(arrival.round_ns, now_ns);
    recorder_.operation(kind, latency_ns);
    recorder_.stage(stage, latency_ns);
    if (latency_ns + arrival.before_ns >= kSlowNs) {
      record_late(kind, session, sequence, stage, arrival, latency_ns, now_ns);
    }
  }

 private:
  /// Time after which a round or an idle poll reads the thread's run delay again. It bounds the delay of earlier rounds
  /// that a reading contains.
  static constexpr uint64_t kReadEveryNs = 1'000'000;

  /// Returns the run delay of the thread since the last reading.
  uint64_t read_run_delay(uint64_t now_ns) {
    run_delay_read_ns_ = now_ns;
    return run_delay_.since_last_ns();
  }
  void start_round(uint64_t now_ns);
  void finish();
  void record_others(uint64_t latency_ns);
  void record_late(OperationKind kind, uint64_t session, uint64_t sequence, Stage stage, const Arrival& arrival,
                   uint64_t latency_ns, uint64_t now_ns);
  void record_slow(const StageTimes& rare);

  Recorder& recorder_;
  const uint64_t* last_look_ns_ = &kNoLookNs;
  RunDelay run_delay_;
  uint64_t run_delay_read_ns_ = 0;  // time of the last reading
  uint64_t late_waited_ns_ = 0;     // run delay that the last late answers waited for
  // The round.
  bool first_of_round_ = true;
  uint64_t round_ns_ = 0;     // begin of its first batch
  uint64_t last_end_ns_ = 0;  // end of the last batch, in this round or an earlier one
  uint64_t slept_ns_ = 0;     // sleep since the last round
  StageTimes next_before_;    // the same, by stage
  StageTimes before_;         // what the thread did before the round, while its requests may have waited
  uint64_t before_ns_ = 0;    // sum of before_
  // The batch.
  uint64_t began_ns_ = 0;
  uint64_t mark_ns_ = 0;
  StageTimes times_;
  size_t requests_ = 0;
  OperationKind first_kind_ = OperationKind::kOther;
  uint64_t session_ = 0;
  uint64_t first_sequence_ = 0;
  uint64_t last_sequence_ = 0;
  size_t other_requests_ = 0;                       // requests of other kinds than first_kind_; most batches have none
  std::array<uint32_t, kOperationKinds> others_{};  // the same, by kind
};

}  // namespace loam::latency
