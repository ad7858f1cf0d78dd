// The loop of the background thread: steps while there is work, and pauses that double while there is none.
#include "storage-node/src/server/background_thread.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/cpu_clock.h"
#include "common/base/env.h"
#include "common/base/log.h"
#include "storage-node/src/index/hash_index.h"

namespace loam::storage {
namespace {

// Upper bounds on the work of one step, which keep steps short.
constexpr size_t kEntriesPerStep = 256;
constexpr size_t kSlotsPerStep = 256;
constexpr size_t kZeroBytesPerStep = size_t{256} << 10;
/// One page in this many is kept zeroed for index arrays. Log pages need no zeroes.
constexpr size_t kZeroedPart = 8;
constexpr size_t kFreesPerStep = 64;
/// The pause after a step without work: short compared with the interval of publications (10 ms). It doubles with each
/// idle step, up to kMaxPauseNs, so that an idle storage node costs few wake-ups.
constexpr uint64_t kPauseNs = 1'000'000;
constexpr uint64_t kMaxPauseNs = 16'000'000;
/// Above this fill of the pool the pause stays at kPauseNs. A pool that is filled within one longer pause has to wait
/// for its end. That needs more writes than a network delivers, or a pool of a few pages.
constexpr double kPressureFill = 0.5;
/// The first pause while the thread only waits for an epoch to pass: batches take microseconds. It doubles up to
/// kPauseNs.
constexpr uint64_t kEpochPauseNs = 50'000;

}  // namespace

BackgroundThread::BackgroundThread(Registry& registry, Compactor& compactor, PagePool& pool, EpochDomain& epochs,
                                   CompactionShare& share, const Options& options)
    : registry_(registry),
      compactor_(compactor),
      pool_(pool),
      epochs_(epochs),
      share_(share),
      options_(options),
      reporter_(registry, pool, epochs) {}

BackgroundThread::~BackgroundThread() { stop(); }

void BackgroundThread::run() {
  thread_ = Thread("loam-background", [this] { loop(); }, options_.nice);
}

void BackgroundThread::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_relaxed);  // relaxed: join() orders what matters
  thread_.join();
}

void BackgroundThread::loop() {
  EpochThread epoch_thread(epochs_, "background");
  ThreadContext context(epoch_thread, options_.writer);
  bool stall_logged = false;
  uint64_t pause_ns = kEpochPauseNs;
  double fill = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {  // relaxed: see stop()
    const uint64_t from_ns = thread_cpu_ns();
    const bool worked = step(context);
    reporter_.step(epoch_thread);
    share_.set_collecting(compactor_.collecting());
    if (worked) {
      share_.record_step(Env::now_ns(), thread_cpu_ns() - from_ns, pool_.fill());
      pause_ns = kEpochPauseNs;
      continue;
    }
    EpochStall stall;
    const bool stalled = epochs_.stall(options_.stall_ns, stall);
    if (stalled && !stall_logged) {
      const uint64_t for_ms = stall.for_ns / 1'000'000;
      log_error("thread.stalled",
                "thread '" + stall.thread + "' has been in one batch for " + std::to_string(for_ms) +
                    " ms; no memory is freed until it ends",
                {{"thread", stall.thread}, {"milliseconds", for_ms}});
    }
    stall_logged = stalled;
    const double before = std::exchange(fill, pool_.fill());
    // The pause stays short while an epoch must pass, while the fill of the pool changes, and above kPressureFill.
    const bool waits = compactor_.waits() || epoch_thread.pending() > 0;
    if (!waits) pause_ns = std::max(pause_ns, kPauseNs);
    if (waits || fill != before || fill > kPressureFill) pause_ns = std::min(pause_ns, kPauseNs);
    share_.record_idle(Env::now_ns() + pause_ns);
    sleep_ns(pause_ns);
    pause_ns = std::min(pause_ns * 2, kMaxPauseNs);
  }
}

bool BackgroundThread::step(ThreadContext& context) {
  // Each kind of work gets one bounded step in each round, so none delays another for long.
  bool busy = compactor_.step(context, kEntriesPerStep);
  {
    const EpochGuard guard(context.epochs());
    for (const auto& [id, table] : registry_.view().tables) {
      busy |= table->table->index().step(context.epochs(), kSlotsPerStep);
    }
  }
  busy |= pool_.zero_step(kZeroBytesPerStep, pool_.pages() / kZeroedPart);
  // The compactor and all frees wait for reclamation epochs to pass, so each round tries to begin the next one.
  epochs_.advance();
  busy |= context.epochs().collect(kFreesPerStep) == kFreesPerStep;
  return busy;
}

}  // namespace loam::storage
