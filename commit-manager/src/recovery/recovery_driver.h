// Between the commit manager's core and its recoverer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include <loam/commit/core.h>
#include <loam/commit/manager.h>

#include "commit-manager/src/recovery/recoverer.h"
#include "common/base/status.h"
#include "common/base/thread.h"

namespace loam::commit {

using StartRecovery = std::function<Result<std::unique_ptr<RecoveryWorker>>(RecovererOptions)>;

/// Role: gives the recoverer what the core wants recovered [R8, R11, docs/decisions/0008-death-and-recovery.md] or
/// swept [R31], and tells the core what became of it. The recoverer is started when there is something to do for the
/// first time, with a session of its own; one that fails is replaced by one with the next session, which is given
/// everything again.
///
/// Owner: CommitManager. Threads: the server's; only the recoverer's callbacks come from elsewhere, and they leave a
/// note and call `wake`.
///
/// Invariants: (1) the recoverer hears that an outcome is acknowledged after the core has it (R5); (2) outcomes that an
/// earlier recoverer reports after it was replaced reach the core, since the nodes have decided them, but are not
/// acknowledged; (3) a scan that ends while none is due is repeated; (4) the next recoverer starts when the nodes
/// refuse the session of the one before: requests that that one had sent may still be executed until then, and would
/// put back undo records that the next one has cleared. So a recoverer that hangs can be left alone, and one that ends
/// does so on a thread of its own: the server's thread waits neither for a resolver nor for a node.
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
  /// Before a scan that met unreadable undo records is repeated.
  static constexpr uint64_t kRescanNs = 5'000'000'000;
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
  /// An operator gives up a transaction whose undo record is unreadable: it ends as if the record had been lost, and
  /// indexes are damaged, because it is unknown how much of it they have; that is stored first. `done` is called once,
  /// now or from a later call of the core, unless the driver ends before. kInvalidArgument: there is no such
  /// transaction; kUnavailable: the recoverer was replaced meanwhile, ask again.
  void accept_unreadable(Core& core, TransactionId id, std::function<void(Status)> done);
  /// The time at which step() has something to do at the latest.
  uint64_t next_deadline_ns() const;

  RecoveryStatistics statistics() const;

 private:
  /// What a recoverer said.
  struct Note {
    enum class Kind { kRecovered, kCleared, kScanDone, kSwept, kFailed };
    Kind kind{};
    uint64_t worker = 0;  // its number
    TransactionId id;
    bool committed = false;
    Status status;
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
  bool gave_up(Core& core, uint64_t now_ns);
  void take_notes(Core& core, uint64_t now_ns);
  void take_note(Core& core, const Note& note, uint64_t now_ns);
  void check(Core& core, uint64_t now_ns);
  bool works() const { return !given_.empty() || scanning_ || sweeping_; }
  bool start_worker(Core& core, uint64_t now_ns);
  Status accepted(uint64_t worker, TransactionId id);
  void end_elsewhere(std::unique_ptr<RecoveryWorker> worker);
  void join_ended();
  void end_worker(Core& core, uint64_t now_ns);
  void forget_worker(Core& core, uint64_t now_ns);
  void refresh_catalog(const Core& core, uint64_t now_ns);

  const StartRecovery start_;
  const Clock clock_;
  const uint64_t sweep_interval_ns_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();

  // The server's thread only.
  uint64_t starts_ = 0;                      // the running worker's number
  std::unordered_set<TransactionId> given_;  // to the worker, not reported cleared
  bool scanning_ = false;
  std::optional<FencedSessions> sweeping_;  // for these
  bool sweep_due_ = false;
  bool check_wanted_ = true;
  uint64_t check_ns_ = 0;    // not before
  uint64_t start_ns_ = 0;    // not before
  uint64_t scan_ns_ = 0;     // not before
  uint64_t sweep_ns_ = 0;    // not before
  uint64_t catalog_ns_ = 0;  // not before
  wire::CatalogVersion catalog_version_ = 0;
  RecoveryStatistics ended_;  // of the workers before
  // The watch: when it last checked, and the statistics that it saw.
  uint64_t watch_ns_ = 0;  // not before; 0: nothing was seen yet
  SessionId session_;      // the worker's
  SessionId left_;         // of the worker before, until it is fenced everywhere
  uint64_t rounds_ = 0;
  uint64_t ended_tasks_ = 0;
  uint32_t silent_looks_ = 0;
  uint32_t idle_looks_ = 0;

  std::map<uint64_t, Thread> ending_;       // threads that wait for the end of a worker, by its number
  std::unique_ptr<RecoveryWorker> worker_;  // last: its end calls back
};

}  // namespace loam::commit
