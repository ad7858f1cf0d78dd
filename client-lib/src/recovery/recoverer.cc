#include <utility>

#include <loam/recovery/recoverer.h>

#include "client-lib/src/recovery/recovery_engine.h"
#include "common/base/assert.h"
#include "common/base/thread.h"
#include "common/rpc/worker.h"

namespace loam::client {
namespace {

/// Besides those that undo index changes, one for each transaction: one sweeps, one closes.
constexpr size_t kOwnFibers = 5;
constexpr size_t kStackBytes = 64 * 1024;

}  // namespace

/// The worker and what runs on it.
class Recoverer::Impl {
 public:
  explicit Impl(std::unique_ptr<rpc::Worker> worker) : worker_(std::move(worker)) {}

  bool open(RecovererOptions options) {
    return worker_->call([&] { engine_ = std::make_unique<RecoveryEngine>(*worker_, std::move(options)); });
  }

  /// Runs `task` on the worker's thread, after what was posted before it. Nothing after stop().
  template <class Task>
  void post(Task task) {
    const std::lock_guard lock(mutex_);
    if (!stopped_) worker_->scheduler().post(std::move(task));
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(stopped_, true)) return;
    }
    if (engine_ != nullptr) worker_->call([this] { engine_->close(); });
    worker_->stop();
  }

  RecoveryEngine& engine() { return *engine_; }

 private:
  Mutex mutex_;
  bool stopped_ = false;  // guarded by mutex_
  const std::unique_ptr<rpc::Worker> worker_;
  std::unique_ptr<RecoveryEngine> engine_;  // set before anybody else knows of it
};

Result<std::unique_ptr<Recoverer>> Recoverer::start(RecovererOptions options) {
  LOAM_CHECK(
      options.on_recovered && options.on_cleared && options.on_scan_done && options.on_swept && options.on_failed,
      "a recoverer needs its callbacks");
  LOAM_CHECK(options.parallel > 0, "a recoverer that may not work on anything");
  rpc::WorkerOptions worker;
  worker.scheme = options.scheme;
  worker.max_fibers = options.parallel + kOwnFibers;
  worker.stack_bytes = kStackBytes;
  LOAM_ASSIGN_OR_RETURN(std::unique_ptr<rpc::Worker> thread, rpc::Worker::start(worker));
  auto impl = std::make_unique<Impl>(std::move(thread));
  if (!impl->open(std::move(options)))
    return Status(StatusCode::kUnavailable, "the recoverer has no fiber to start in");
  return std::unique_ptr<Recoverer>(new Recoverer(std::move(impl)));
}

Recoverer::Recoverer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Recoverer::~Recoverer() { stop(); }

void Recoverer::set_catalog(wire::Catalog catalog) {
  impl_->post(
      [impl = impl_.get(), catalog = std::move(catalog)]() mutable { impl->engine().set_catalog(std::move(catalog)); });
}

void Recoverer::add(std::vector<RecoveryTask> tasks) {
  impl_->post([impl = impl_.get(), tasks = std::move(tasks)] { impl->engine().add(tasks); });
}

void Recoverer::acknowledged(TransactionId id) {
  impl_->post([impl = impl_.get(), id] { impl->engine().acknowledged(id); });
}

void Recoverer::scan() {
  impl_->post([impl = impl_.get()] { impl->engine().scan(); });
}

void Recoverer::sweep(wire::FenceSet ended) {
  impl_->post([impl = impl_.get(), ended = std::move(ended)]() mutable { impl->engine().sweep(std::move(ended)); });
}

void Recoverer::accept_unreadable(TransactionId id) {
  impl_->post([impl = impl_.get(), id] { impl->engine().accept_unreadable(id); });
}

void Recoverer::stop() { impl_->stop(); }

RecovererStatistics Recoverer::statistics() const { return impl_->engine().statistics(); }

}  // namespace loam::client
