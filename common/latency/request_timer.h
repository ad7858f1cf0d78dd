// Times the requests that a polling client thread sends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/base/env.h"
#include "common/latency/recorder.h"
#include "common/latency/run_delay.h"

namespace loam::latency {

/// Times the requests of one client thread, and records them.
///
/// A round of the thread is a poll of the network, followed by the fibers that have become ready. The latency of a
/// request is the time from the begin of the round in which it was made to the poll that received its reply. A slow
/// request is recorded with its stages: it waited in the window of its channel, fibers ran, the thread waited for a
/// core, and the rest is the network and the server. What the server did has the same session and sequence in the
/// server's own record.
///
/// Cost: two readings of the clock a round, and a few additions a request. Nothing is timed in the simulator, whose
/// schedule must not depend on timers.
///
/// Owner and threads: the client thread.
class RequestTimer {
 public:
  /// `recorder` outlives the timer.
  explicit RequestTimer(Recorder& recorder) : recorder_(recorder) {}

  /// Sets where the transport tells its last look for events (net::Transport::last_look_ns()).
  void watch(const uint64_t& last_look_ns) { last_look_ns_ = &last_look_ns; }
  /// Sets the session of the requests that are answered from now on.
  void set_session(uint64_t session) { session_ = session; }
  /// Returns the begin of the round, as the time at which a request was made or sent; 0 in the simulator.
  uint64_t round_ns() const { return round_ns_; }
  /// The fibers of the round have run, and the thread polls the network next.
  void before_poll() {
    if constexpr (Env::kSimulated) return;
    const uint64_t now_ns = Env::now_ns();
    if (now_ns - round_ns_ >= kLongNs && round_ns_ != 0) fibers_ran(now_ns);
    poll_ns_ = 0;
  }
  /// A poll has ended, and a round begins.
  void after_poll(uint64_t now_ns) {
    if constexpr (Env::kSimulated) return;
    round_ns_ = now_ns;
    if (now_ns - run_delay_read_ns_ >= kSlowNs) read_run_delay(now_ns);
  }
  /// A reply has arrived. `node` is the storage node, 0 for the commit manager.
  void answered(OperationKind kind, uint64_t node, uint64_t sequence, uint64_t made_ns, uint64_t sent_ns) {
    if constexpr (Env::kSimulated) return;
    if (poll_ns_ == 0) first_reply();
    if (made_ns == 0) return;  // made before the first round
    const uint64_t latency_ns = poll_ns_ - made_ns;
    recorder_.operation(kind, latency_ns);
    // A scan takes as long as its table is large.
    if (latency_ns >= kSlowNs && kind != OperationKind::kScan) record_slow(kind, node, sequence, made_ns, sent_ns);
  }

 private:
  /// Fibers that ran for longer than this are remembered, and so is a wait for a core.
  static constexpr uint64_t kLongNs = 200'000;
  /// Number of remembered delays. They cover the time of the slow requests that are under way.
  static constexpr size_t kDelays = 64;
  /// A time in which the thread did not poll.
  struct Delay {
    Stage stage = Stage::kClient;
    uint64_t begin_ns = 0;
    uint64_t end_ns = 0;
    uint64_t ns = 0;  // its length within these limits
  };

  /// The first reply of a poll has arrived.
  void first_reply() {
    poll_ns_ = Env::now_ns();
    const uint64_t unseen_ns = unseen_ns_at(poll_ns_, *last_look_ns_);
    if (unseen_ns != 0) read_run_delay(poll_ns_, unseen_ns);
  }
  void fibers_ran(uint64_t now_ns);
  /// Remembers and returns for how long the thread has waited for a core since the last reading: at least `unseen_ns`.
  uint64_t read_run_delay(uint64_t now_ns, uint64_t unseen_ns = 0);
  void remember(const Delay& delay) { delays_[delay_count_++ % kDelays] = delay; }
  void record_slow(OperationKind kind, uint64_t node, uint64_t sequence, uint64_t made_ns, uint64_t sent_ns);

  Recorder& recorder_;
  const uint64_t* last_look_ns_ = &kNoLookNs;
  RunDelay run_delay_;
  uint64_t run_delay_read_ns_ = 0;
  uint64_t session_ = 0;
  uint64_t round_ns_ = 0;
  uint64_t poll_ns_ = 0;  // time of the first reply of this poll; 0: there is none yet
  std::array<Delay, kDelays> delays_{};
  size_t delay_count_ = 0;
};

}  // namespace loam::latency
