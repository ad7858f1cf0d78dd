// The link between the core of the commit manager and its recoverer.
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

/// Starts a recoverer, or a stand-in for tests.
using RecoveryWorkerFactory = std::function<Result<std::unique_ptr<RecoveryWorker>>(RecovererOptions)>;

/// Passes recovery tasks [R8, completion by the owner, recovery after the fence; R11, commit log and restart of the
/// commit manager; docs/decisions/0021-the-commit-manager-decides.md] and sweeps [R31, structure changes of the
/// Bd-tree] from the core to the recoverer, and its reports back to the core. It starts a recoverer, with a session
/// of its own, when the first work appears. A recoverer that fails is replaced by one with the next session, which
/// gets all unfinished work again.
///
/// Owner: CommitManager. Threads: the server thread calls all functions. The callbacks of the recoverer come from its
/// own thread; they leave a report in the inbox and call `wake`.
///
/// Invariants:
/// 1. A recoverer gets each node of a session once, until it reports that node.
/// 2. The core gets every report, also a late one of a recoverer that was replaced. A node where such a recoverer
///    has undone the writes of a session stays clean: the session can write nothing there any more, and no other
///    recoverer brings anything back. The core itself ignores reports about a node whose process has started anew.
/// 3. The next recoverer starts without regard to the previous one, and both may work at the same time, because
///    every step may be repeated, arrive late, or meet the same step of another recoverer (RecoveryAttempt). The
///    session of the previous one is fenced, so that it ends, and so that a sweep removes its orphaned tree nodes.
/// 4. The server thread waits for neither a recoverer nor a storage node. A recoverer that hangs is abandoned, and
///    one that ends is destroyed on a thread of its own.
class RecoveryDriver {
 public:
  /// Minimum interval between two checks of the core for tasks.
  static constexpr uint64_t kCheckNs = 1'000'000;
  /// A check may take at most 1/kCheckShare of the server's time: its cost grows with the tasks that wait for dead
  /// nodes.
  static constexpr uint64_t kCheckShare = 16;
  /// Upper bound on new tasks per check.
  static constexpr size_t kMaxTaskBatch = 1'024;
  /// Pause between a recoverer that failed and the next one.
  static constexpr uint64_t kRestartNs = 100'000'000;
  /// Pause before another try to start a recoverer that could not be started.
  static constexpr uint64_t kRetryStartNs = 1'000'000'000;
  /// Interval at which a recoverer with work gets the present catalog.
  static constexpr uint64_t kCatalogNs = 20'000'000;

  /// Interval at which the watchdog checks a recoverer that has work.
  static constexpr uint64_t kWatchdogIntervalNs = 1'000'000'000;
  /// Number of watchdog checks in a row without a poll round of the recoverer's thread after which the recoverer is
  /// replaced. The limit is a number of checks, because a process that was stopped for a while made no checks then.
  static constexpr uint32_t kMaxStalledChecks = 30;
  /// Number of watchdog checks in a row without progress, while no task waits for a node, after which it is replaced.
  static constexpr uint32_t kMaxIdleChecks = 120;

  using Clock = std::function<uint64_t()>;

  /// `wake` makes the server thread call step() soon; any thread may call it. `sweep_interval_ns` is the minimum
  /// interval between two sweeps of the indexes (Core::sweep_due()).
  RecoveryDriver(RecoveryWorkerFactory start, Clock clock, std::function<void()> wake, uint64_t sweep_interval_ns);
  ~RecoveryDriver();
  RecoveryDriver(const RecoveryDriver&) = delete;
  RecoveryDriver& operator=(const RecoveryDriver&) = delete;

  /// Called after every poll round of the server. `changed`: the round has executed something.
  void step(Core& core, bool changed);
  /// Returns the time at which step() has work even if nothing else happens.
  uint64_t next_deadline_ns() const;

  RecoveryStatistics statistics() const;

 private:
  /// A report of a recoverer.
  struct WorkerReport {
    enum class Kind { kRecovered, kSwept, kFailed };
    Kind kind{};
    uint64_t worker = 0;  // number of the recoverer
    RecoveryTask task;    // for kRecovered
    Status status;        // for the other kinds
  };

  /// Takes the callbacks of recoverers. It outlives the driver if a recoverer hangs.
  struct Inbox {
    Mutex mutex;
    std::vector<WorkerReport> reports;  // guarded by mutex
    std::vector<uint64_t> ended;        // guarded by mutex; numbers of workers that are destroyed
    std::function<void()> wake;         // guarded by mutex; empty: the driver is gone

    void post(WorkerReport report);
  };

  /// The watchdog. Returns true if it has replaced the recoverer.
  bool replace_if_stuck(uint64_t now_ns);
  void process_reports(Core& core, uint64_t now_ns);
  void process_report(Core& core, const WorkerReport& report, uint64_t now_ns);
  void check(Core& core, uint64_t now_ns);
  bool has_work() const { return !dispatched_.empty() || sweeping_; }
  /// Returns the tasks of the core that the worker does not have.
  std::vector<RecoveryTask> new_tasks(const Core& core) const;
  bool start_worker(Core& core, uint64_t now_ns);
  void destroy_in_background(std::unique_ptr<RecoveryWorker> worker);
  void join_ended();
  void end_worker(uint64_t now_ns);
  void reset_worker_state(uint64_t now_ns);
  void refresh_catalog(const Core& core, uint64_t now_ns);

  const RecoveryWorkerFactory start_;
  const Clock clock_;
  const uint64_t sweep_interval_ns_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();

  // The server thread only. Each time below is the earliest time at which the action may happen.
  uint64_t worker_number_ = 0;                         // the running worker's number
  std::set<std::pair<SessionId, NodeId>> dispatched_;  // given to the worker and not reported
  std::optional<FencedSessions> sweeping_;             // the sessions of the sweep under way
  bool sweep_due_ = false;
  bool check_wanted_ = true;
  uint64_t check_ns_ = 0;    // next check of the core
  uint64_t start_ns_ = 0;    // next start of a recoverer
  uint64_t sweep_ns_ = 0;    // next sweep
  uint64_t catalog_ns_ = 0;  // next refresh of the catalog
  wire::CatalogVersion catalog_version_ = 0;
  RecoveryStatistics past_statistics_;  // of earlier workers
  // The watchdog: when it checks next, and the statistics at its last check.
  uint64_t next_watchdog_ns_ = 0;  // 0: no check of this worker yet
  uint64_t rounds_ = 0;
  uint64_t progress_ = 0;
  uint32_t stalled_checks_ = 0;
  uint32_t idle_checks_ = 0;

  std::map<uint64_t, Thread> destroying_threads_;  // threads that destroy a worker, by its number
  std::unique_ptr<RecoveryWorker> worker_;         // declared last: its destructor calls back
};

}  // namespace loam::commit
