#include "storage-node/src/server/background_thread.h"

#include <chrono>

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/log.h"
#include "storage-node/src/index/hash_index.h"

namespace loam::storage {
namespace {

constexpr size_t kEntriesPerStep = 256;
constexpr size_t kSlotsPerStep = 256;
constexpr size_t kZeroBytesPerStep = size_t{256} << 10;
constexpr size_t kFreesPerStep = 64;
/// Between two looks when there was nothing to do: short against the commit manager's publications (10 ms).
constexpr auto kPause = std::chrono::milliseconds(1);
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
  thread_ = std::thread([this] { loop(); });
  pthread_setname_np(thread_.native_handle(), "loam-background");
}

void BackgroundThread::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_relaxed);  // relaxed: join() orders what matters
  thread_.join();
}

void BackgroundThread::loop() {
  // Linux: priorities are per thread. It may be refused in a container; then the thread is as eager as the others.
  static_cast<void>(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice));
  EpochThread epoch_thread(epochs_, "background");
  ThreadContext context(epoch_thread, writer_);
  bool stall_logged = false;
  while (!stopping_.load(std::memory_order_relaxed)) {  // relaxed: see stop()
    if (step(context)) continue;
    EpochStall stall;
    const bool stalled = epochs_.stall(kStallNs, stall);
    if (stalled && !stall_logged) {
      log_error("thread '" + stall.thread + "' has been in one batch for " + std::to_string(stall.for_ns / 1'000'000) +
                " ms; no memory is freed until it ends");
    }
    stall_logged = stalled;
    std::this_thread::sleep_for(kPause);
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
