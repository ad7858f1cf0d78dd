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

constexpr size_t kEntriesPerStep = 256;
constexpr size_t kSlotsPerStep = 256;
constexpr size_t kZeroBytesPerStep = size_t{256} << 10;
/// Part of the pool's pages that is kept zeroed for index arrays; log pages need no zeroes.
constexpr size_t kZeroedPart = 8;
constexpr size_t kFreesPerStep = 64;
/// Between two looks when there was nothing to do: short against the commit manager's publications (10 ms). Doubled
/// with every look that finds the node idle, up to kMaxPauseNs: an idle node costs next to no wake-ups.
constexpr uint64_t kPauseNs = 1'000'000;
constexpr uint64_t kMaxPauseNs = 16'000'000;
/// A pool that is this full is looked at every kPauseNs. One that is filled within a single longer pause is met at its
/// end: that takes more than a network gives, or a pool of a few pages.
constexpr double kPressureFill = 0.5;
/// When all there is to do is to wait for an epoch: batches take microseconds. Doubled up to kPauseNs.
constexpr uint64_t kEpochPauseNs = 50'000;

}  // namespace

BackgroundThread::BackgroundThread(Registry& registry, Compactor& compactor, PagePool& pool, EpochDomain& epochs,
                                   CompactionShare& share, const Options& options)
    : registry_(registry), compactor_(compactor), pool_(pool), epochs_(epochs), share_(share), options_(options) {}

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
    share_.collects(compactor_.collecting());
    if (worked) {
      share_.worked(Env::now_ns(), thread_cpu_ns() - from_ns, pool_.fill());
      pause_ns = kEpochPauseNs;
      continue;
    }
    EpochStall stall;
    const bool stalled = epochs_.stall(options_.stall_ns, stall);
    if (stalled && !stall_logged) {
      log_error("thread '" + stall.thread + "' has been in one batch for " + std::to_string(stall.for_ns / 1'000'000) +
                " ms; no memory is freed until it ends");
    }
    stall_logged = stalled;
    const double before = std::exchange(fill, pool_.fill());
    const bool waits = compactor_.waits() || epoch_thread.pending() > 0;
    if (!waits) pause_ns = std::max(pause_ns, kPauseNs);
    if (waits || fill != before || fill > kPressureFill) pause_ns = std::min(pause_ns, kPauseNs);
    share_.rests(Env::now_ns() + pause_ns);
    sleep_ns(pause_ns);
    pause_ns = std::min(pause_ns * 2, kMaxPauseNs);
  }
}

bool BackgroundThread::step(ThreadContext& context) {
  bool busy = compactor_.step(context, kEntriesPerStep);
  {
    const EpochGuard guard(context.epochs());
    for (const auto& [id, table] : registry_.view().tables) {
      busy |= table->table->index().step(context.epochs(), kSlotsPerStep);
    }
  }
  busy |= pool_.zero_step(kZeroBytesPerStep, pool_.pages() / kZeroedPart);
  epochs_.advance();
  busy |= context.epochs().collect(kFreesPerStep) == kFreesPerStep;
  return busy;
}

}  // namespace loam::storage
