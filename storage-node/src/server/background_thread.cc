#include "storage-node/src/server/background_thread.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "storage-node/src/index/hash_index.h"

namespace loam::storage {
namespace {

constexpr size_t kEntriesPerStep = 256;
constexpr size_t kSlotsPerStep = 256;
constexpr size_t kZeroBytesPerStep = size_t{256} << 10;
constexpr size_t kFreesPerStep = 64;
/// Between two looks when there was nothing to do: short against the commit manager's publications (10 ms). Doubled
/// with every look that finds the node idle, up to kMaxPauseNs: an idle node costs next to no wake-ups.
constexpr uint64_t kPauseNs = 1'000'000;
constexpr uint64_t kMaxPauseNs = 16'000'000;
/// A pool that is this full is looked at every kPauseNs. One that is filled within a single longer pause is met at its
/// end: that takes more than a network gives, or a pool of a few pages.
constexpr double kPressureFill = 0.5;
/// Below the network threads (0): they get the core first when both want it.
constexpr int kNice = 5;
/// A thread that has been inside one batch for so long holds all reclamation back.
constexpr uint64_t kStallNs = 5'000'000'000;

}  // namespace

BackgroundThread::BackgroundThread(Registry& registry, Compactor& compactor, PagePool& pool, EpochDomain& epochs,
                                   size_t writer)
    : registry_(registry), compactor_(compactor), pool_(pool), epochs_(epochs), writer_(writer) {}

BackgroundThread::~BackgroundThread() { stop(); }

void BackgroundThread::run() {
  thread_ = Thread("loam-background", [this] { loop(); }, kNice);
}

void BackgroundThread::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_relaxed);  // relaxed: join() orders what matters
  thread_.join();
}

void BackgroundThread::loop() {
  EpochThread epoch_thread(epochs_, "background");
  ThreadContext context(epoch_thread, writer_);
  bool stall_logged = false;
  uint64_t pause_ns = kPauseNs;
  double fill = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {  // relaxed: see stop()
    if (step(context)) {
      pause_ns = kPauseNs;
      continue;
    }
    EpochStall stall;
    const bool stalled = epochs_.stall(kStallNs, stall);
    if (stalled && !stall_logged) {
      log_error("thread '" + stall.thread + "' has been in one batch for " + std::to_string(stall.for_ns / 1'000'000) +
                " ms; no memory is freed until it ends");
    }
    stall_logged = stalled;
    const double before = std::exchange(fill, pool_.fill());
    if (fill != before || fill > kPressureFill || compactor_.waits() || epoch_thread.pending() > 0) pause_ns = kPauseNs;
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
  busy |= pool_.zero_step(kZeroBytesPerStep);
  epochs_.advance();
  busy |= context.epochs().collect(kFreesPerStep) == kFreesPerStep;
  return busy;
}

}  // namespace loam::storage
