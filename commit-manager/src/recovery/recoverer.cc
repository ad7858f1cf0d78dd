// The calls of the owner, which pass their work to the recoverer's thread. On it recovery_engine.cc schedules the
// tasks, recovery_attempt.cc undoes one of them, and recovery_sweep.cc sweeps the indexes.
#include "commit-manager/src/recovery/recoverer.h"

#include <utility>

#include "commit-manager/src/recovery/recovery_engine.h"
#include "common/base/assert.h"
#include "common/base/thread.h"

namespace loam::commit {
namespace {

/// Fibers beside those of attempts and helpers: one sweeps, one closes, and some are spare.
constexpr size_t kOwnFibers = 5;
constexpr size_t kStackBytes = 64 * 1024;
/// Pause before stop() tries again to get a fiber.
constexpr uint64_t kCallAgainNs = 1'000'000;

}  // namespace

Result<std::unique_ptr<Recoverer>> Recoverer::start(RecovererOptions options) {
  LOAM_CHECK(options.on_recovered && options.on_swept && options.on_failed, "a recoverer needs its callbacks");
  LOAM_CHECK(options.parallel > 0, "a recoverer needs at least one attempt at a time");
  rpc::WorkerOptions worker;
  worker.thread_name = "loam-recovery";
  worker.scheme = options.scheme;
  worker.max_fibers = options.parallel + kOwnFibers + kMaxHelpers;
  worker.stack_bytes = kStackBytes;
  LOAM_ASSIGN_OR_RETURN(std::unique_ptr<rpc::Worker> thread, rpc::Worker::start(worker));
  std::unique_ptr<Recoverer> recoverer(new Recoverer(std::move(thread)));
  // The engine is made on the thread that will use it, before another thread can post to it.
  const auto make = [&] {
    recoverer->engine_ = std::make_unique<RecoveryEngine>(*recoverer->worker_, std::move(options));
  };
  if (!recoverer->worker_->call(make)) {
    return Status(StatusCode::kUnavailable, "the recoverer has no fiber to start in");
  }
  return recoverer;
}

Recoverer::Recoverer(std::unique_ptr<rpc::Worker> worker) : worker_(std::move(worker)) {}

Recoverer::~Recoverer() { stop(); }

void Recoverer::stop() {
  // post() checks the flag under the same mutex, so no task follows close().
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  // All fibers may be in use. One ends soon, because every request has a deadline.
  while (engine_ != nullptr && !worker_->call([this] { engine_->close(); })) sleep_ns(kCallAgainNs);
  worker_->stop();
}

void Recoverer::set_catalog(wire::Catalog catalog) {
  post([this, catalog = std::move(catalog)]() mutable { engine_->set_catalog(std::move(catalog)); });
}

void Recoverer::add(std::vector<RecoveryTask> tasks) {
  post([this, tasks = std::move(tasks)] { engine_->add(tasks); });
}

void Recoverer::sweep(wire::FenceSet ended) {
  post([this, ended = std::move(ended)]() mutable { engine_->sweep(std::move(ended)); });
}

RecoveryStatistics Recoverer::statistics() const { return engine_->statistics(); }

}  // namespace loam::commit
