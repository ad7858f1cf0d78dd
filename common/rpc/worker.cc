// The thread of a worker: its start, the rounds of poll and hook, calls from other threads, and its end.

#include "common/rpc/worker.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "common/net/make_transport.h"

namespace loam::rpc {
namespace {

/// A function that another thread runs on the worker, and its end, for which that thread waits.
struct RemoteCall {
  OneShotEvent ended;
  // Written before `ended`.
  bool ran = false;
  std::exception_ptr thrown;
};

/// Runs the function and keeps its exception for the caller. Its destructor ends the caller's wait, also if the
/// function never ran.
class RemoteCallGuard {
 public:
  explicit RemoteCallGuard(std::shared_ptr<RemoteCall> call) : call_(std::move(call)) {}
  RemoteCallGuard(RemoteCallGuard&&) noexcept = default;
  RemoteCallGuard& operator=(RemoteCallGuard&&) = delete;
  ~RemoteCallGuard() {
    if (call_ != nullptr) call_->ended.notify();
  }
  void run(const std::function<void()>& function) {
    call_->ran = true;
    try {
      function();
    } catch (...) {
      call_->thrown = std::current_exception();
    }
  }

 private:
  std::shared_ptr<RemoteCall> call_;
};

/// Waits for the end of the call, throws the exception of its function, and returns whether the function ran.
bool wait_for(RemoteCall& call) {
  call.ended.wait();
  if (call.thrown) std::rethrow_exception(std::exchange(call.thrown, nullptr));
  return call.ran;
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::start(const WorkerOptions& options) {
  std::unique_ptr<Worker> worker(new Worker(options));
  worker->thread_ = Thread(options.thread_name, [w = worker.get()] { w->run(); });
  worker->started_.wait();
  if (!worker->setup_status_.ok()) {
    worker->thread_.join();
    return worker->setup_status_;
  }
  return worker;
}

void Worker::run() {
  // The thread makes transport and scheduler itself, because both belong to the thread that makes them.
  setup_status_ = set_up();
  const bool ready = setup_status_.ok();
  started_.notify();
  if (!ready) return;
  scheduler_->run();
  own_.store(nullptr, std::memory_order_relaxed);  // relaxed: see on_worker()
  // stop() wakes the scheduler through the transport; it must have done so before they are destroyed.
  stop_requested_.wait();
  scheduler_.reset();
  transport_.reset();
}

Worker::~Worker() { stop(); }

Status Worker::set_up() {
  net::TransportOptions transport;
  transport.spin_ns = options_.spin_ns;
  LOAM_ASSIGN_OR_RETURN(transport_, net::make_transport(options_.scheme, transport));
  fiber::SchedulerOptions scheduler;
  scheduler.stack_bytes = options_.stack_bytes;
  scheduler.max_fibers = options_.max_fibers;
  scheduler.idle = [this](uint64_t timeout_ns) { run_round(timeout_ns); };
  scheduler.wake = [t = transport_.get()] { t->wake(); };
  scheduler.on_stall = [this](const fiber::FiberStall& hold) { warn_of_stall(hold); };
  scheduler_ = std::make_unique<fiber::FiberScheduler>(std::move(scheduler));
  own_.store(scheduler_.get(), std::memory_order_relaxed);  // relaxed: see on_worker()
  return ok_status();
}

void Worker::run_round(uint64_t timeout_ns) {
  if (hook_ == nullptr) {
    transport_->poll(timeout_ns);
    return;
  }
  // The poll ends at the earlier one of the next deadline of a fiber (`timeout_ns`) and that of the hook.
  const uint64_t deadline_ns = hook_->before_poll();
  if (timeout_ns != 0 && deadline_ns != net::kForever) {
    const uint64_t now_ns = scheduler_->now_ns();
    timeout_ns = std::min(timeout_ns, deadline_ns > now_ns ? deadline_ns - now_ns : 0);
  }
  transport_->poll(timeout_ns);
  if (hook_ != nullptr) hook_->after_poll(scheduler_->now_ns());
}

void Worker::warn_of_stall(const fiber::FiberStall& hold) {
  constexpr uint64_t kBetweenWarningsNs = 1'000'000'000;
  const uint64_t now_ns = scheduler_->now_ns();
  if (!options_.on_warning || now_ns - last_warning_ns_ < kBetweenWarningsNs) return;
  last_warning_ns_ = now_ns;
  options_.on_warning("fiber " + std::to_string(hold.fiber) + " held the client's thread for " +
                      std::to_string(hold.stalled_ns / 1'000'000) + " ms without waiting; all other fibers waited");
}

bool Worker::call(const std::function<void()>& function) {
  if (on_worker() && fiber::FiberScheduler::in_fiber()) {
    function();
    return true;
  }
  // The capture by reference is safe: this thread waits until the function has run or its guard is destroyed. The guard
  // shares the call, because notify() may still be running when this thread returns.
  const auto call = std::make_shared<RemoteCall>();
  scheduler_->spawn_remote([end = RemoteCallGuard(call), &function]() mutable { end.run(function); });
  return wait_for(*call);
}

bool Worker::call_without_fiber(const std::function<void()>& function) {
  if (on_worker()) {
    function();
    return true;
  }
  const auto call = std::make_shared<RemoteCall>();
  scheduler_->post([end = RemoteCallGuard(call), &function]() mutable { end.run(function); });
  return wait_for(*call);
}

void Worker::spawn(fiber::Task body) {
  if (on_worker()) {
    static_cast<void>(scheduler_->spawn(std::move(body)));  // a refused body is destroyed, which ends a caller's wait
  } else {
    scheduler_->spawn_remote(std::move(body));
  }
}

void Worker::stop() {
  if (!thread_.joinable()) return;
  scheduler_->stop();
  stop_requested_.notify();
  thread_.join();
}

}  // namespace loam::rpc
