// Between the commit manager's core and its recoverer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <loam/commit/core.h>
#include <loam/commit/manager.h>

#include "commit-manager/src/recovery/recoverer.h"
#include "common/base/status.h"
#include "common/base/thread.h"

namespace loam::commit {

using StartRecovery = std::function<Result<std::unique_ptr<RecoveryWorker>>(RecovererOptions)>;

/// Role: gives the recoverer what the core wants recovered [R8, R11, docs/decisions/0021-the-commit-manager-decides.md]
/// or swept [R31], and tells the core what became of it. The recoverer is started when there is something to do for the
/// first time, with a session of its own; one that fails is replaced by one with the next session, which is given
/// everything again.
///
/// Owner: CommitManager. Threads: the server's; only the recoverer's callbacks come from elsewhere, and they leave a
/// note and call `wake`.
///
/// Invariants:
/// 1. A recoverer is given each node of a session once, until it reports that node.
/// 2. The core gets every report, also a late one of a recoverer that was replaced. Writes that such a recoverer has
///    undone at a node stay undone: the session can write nothing there any more, and no other recoverer brings
///    anything back. The core itself ignores reports about a node that was started anew.
/// 3. The next recoverer starts without a look at the one before, and the two may work at one time: every step of a
///    recovery may be repeated, arrive late, or meet another recoverer's (RecoveryAttempt). The session of the one
///    before is fenced so that it ends, and so that nodes of indexes that it has left half made are swept.
/// 4. A recoverer that hangs is left alone, and one that ends does so on a thread of its own: the server's thread waits
///    neither for a recoverer nor for a node.
class RecoveryDriver {
 public:
  /// How soon after a change the core is asked what there is to do; and a lower bound between two questions.
  static constexpr uint64_t kCheckNs = 1'000'000;
  /// Asking takes at most 1/kCheckShare of the server's time: the list grows with what waits for dead nodes.
  static constexpr uint64_t kCheckShare = 16;
  /// Tasks handed over at a time.
  static constexpr size_t kTasksAtATime = 1'024;
  /// Before a recoverer that failed is followed by the next.
  static constexpr uint64_t kRestartNs = 100'000'000;
  /// Before one that could not be started is tried again.
  static constexpr uint64_t kRetryStartNs = 1'000'000'000;
  /// While there is something to do, the recoverer hears of nodes that went or came so soon.
  static constexpr uint64_t kCatalogNs = 20'000'000;

  /// While it has tasks, the recoverer is checked in this interval.
  static constexpr uint64_t kWatchNs = 1'000'000'000;
  /// Looks in which its thread did not turn, and in which it ended nothing though no node is waited for; then it is
  /// replaced. Looks and not times: a process that was stopped and continued is not at fault.
  static constexpr uint32_t kSilentLooks = 30;
  static constexpr uint32_t kIdleLooks = 120;

  using Clock = std::function<uint64_t()>;

  /// `wake` makes the server's thread call step() soon; called from any thread. Between two sweeps of the indexes
  /// (Core::sweep_due) there are `sweep_interval_ns` at least.
  RecoveryDriver(StartRecovery start, Clock clock, std::function<void()> wake, uint64_t sweep_interval_ns);
  ~RecoveryDriver();
  RecoveryDriver(const RecoveryDriver&) = delete;
  RecoveryDriver& operator=(const RecoveryDriver&) = delete;

  /// After every round of the server; `changed`: something was executed in it.
  void step(Core& core, bool changed);
  /// The time at which step() has something to do at the latest.
  uint64_t next_deadline_ns() const;

  RecoveryStatistics statistics() const;

 private:
  /// What a recoverer said.
  struct Note {
    enum class Kind { kRecovered, kSwept, kFailed };
    Kind kind{};
    uint64_t worker = 0;  // its number
    RecoveryTask task;    // of kRecovered
    Status status;        // of the others
  };

  /// What recoverers call back into. Outlives the driver where one of them hangs.
  struct Inbox {
    Mutex mutex;
    std::vector<Note> notes;      // guarded by mutex
    std::vector<uint64_t> ended;  // guarded by mutex; workers whose end is over, by number
    std::function<void()> wake;   // guarded by mutex; empty: the driver is gone

    void leave(Note note);
  };

  /// Watches the recoverer; true if it was given up.
  bool gave_up(uint64_t now_ns);
  void take_notes(Core& core, uint64_t now_ns);
  void take_note(Core& core, const Note& note, uint64_t now_ns);
  void check(Core& core, uint64_t now_ns);
  bool works() const { return !given_.empty() || sweeping_; }
  /// What of the core's tasks the worker does not have.
  std::vector<RecoveryTask> new_tasks(const Core& core) const;
  bool start_worker(Core& core, uint64_t now_ns);
  void end_elsewhere(std::unique_ptr<RecoveryWorker> worker);
  void join_ended();
  void end_worker(uint64_t now_ns);
  void forget_worker(uint64_t now_ns);
  void refresh_catalog(const Core& core, uint64_t now_ns);

  const StartRecovery start_;
  const Clock clock_;
  const uint64_t sweep_interval_ns_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();

  // The server's thread only.
  uint64_t starts_ = 0;                           // the running worker's number
  std::set<std::pair<SessionId, NodeId>> given_;  // to the worker, not reported
  std::optional<FencedSessions> sweeping_;        // for these
  bool sweep_due_ = false;
  bool check_wanted_ = true;
  uint64_t check_ns_ = 0;    // not before
  uint64_t start_ns_ = 0;    // not before
  uint64_t sweep_ns_ = 0;    // not before
  uint64_t catalog_ns_ = 0;  // not before
  wire::CatalogVersion catalog_version_ = 0;
  RecoveryStatistics ended_;  // of the workers before
  // The watch: when it last checked, and the statistics that it saw.
  uint64_t watch_ns_ = 0;  // not before; 0: nothing was seen yet
  uint64_t rounds_ = 0;
  uint64_t progress_ = 0;
  uint32_t silent_looks_ = 0;
  uint32_t idle_looks_ = 0;

  std::map<uint64_t, Thread> ending_;       // threads that wait for the end of a worker, by its number
  std::unique_ptr<RecoveryWorker> worker_;  // last: its end calls back
};

}  // namespace loam::commit
