#include "common/rpc/worker.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace loam::rpc {
namespace {

/// Where an ordinary thread waits for what it asked the worker's thread to run.
struct Handover {
  Happening ended;
  // Written before `ended`.
  bool ran = false;
  std::exception_ptr thrown;
};

/// Runs the function, and keeps what it throws for the caller. Ends the wait also if it is destroyed uncalled.
class HandoverEnd {
 public:
  explicit HandoverEnd(std::shared_ptr<Handover> call) : call_(std::move(call)) {}
  HandoverEnd(HandoverEnd&&) noexcept = default;
  HandoverEnd& operator=(HandoverEnd&&) = delete;
  ~HandoverEnd() {
    if (call_ != nullptr) call_->ended.happen();
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
  std::shared_ptr<Handover> call_;
};

/// Waits for the call; throws what its function threw. Whether it ran.
bool wait_for(Handover& call) {
  call.ended.wait();
  if (call.thrown) std::rethrow_exception(std::exchange(call.thrown, nullptr));
  return call.ran;
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::start(const WorkerOptions& options) {
  std::unique_ptr<Worker> worker(new Worker(options));
  worker->thread_ = Thread(options.thread_name, [w = worker.get()] { w->run(); });
  worker->started_.wait();
  if (!worker->set_up_.ok()) {
    worker->thread_.join();
    return worker->set_up_;
  }
  return worker;
}

void Worker::run() {
  set_up_ = set_up();
  const bool ready = set_up_.ok();
  started_.happen();
  if (!ready) return;
  scheduler_->run();
  own_.store(nullptr, std::memory_order_relaxed);  // relaxed: see on_worker()
  told_to_stop_.wait();
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
  scheduler.on_long_hold = [this](const fiber::LongHold& hold) { warn_of_long_hold(hold); };
  scheduler_ = std::make_unique<fiber::FiberScheduler>(std::move(scheduler));
  own_.store(scheduler_.get(), std::memory_order_relaxed);  // relaxed: see on_worker()
  return ok_status();
}

void Worker::run_round(uint64_t timeout_ns) {
  if (hook_ == nullptr) {
    transport_->poll(timeout_ns);
    return;
  }
  const uint64_t deadline_ns = hook_->before_poll();
  if (timeout_ns != 0 && deadline_ns != net::kForever) {
    const uint64_t now_ns = scheduler_->now_ns();
    timeout_ns = std::min(timeout_ns, deadline_ns > now_ns ? deadline_ns - now_ns : 0);
  }
  transport_->poll(timeout_ns);
  if (hook_ != nullptr) hook_->after_poll(scheduler_->now_ns());
}

void Worker::warn_of_long_hold(const fiber::LongHold& hold) {
  constexpr uint64_t kBetweenWarningsNs = 1'000'000'000;
  const uint64_t now_ns = scheduler_->now_ns();
  if (!options_.on_warning || now_ns - last_warning_ns_ < kBetweenWarningsNs) return;
  last_warning_ns_ = now_ns;
  options_.on_warning("fiber " + std::to_string(hold.fiber) + " held the client's thread for " +
                      std::to_string(hold.held_ns / 1'000'000) + " ms without waiting; all others stood still");
}

bool Worker::call(const std::function<void()>& function) {
  if (on_worker() && fiber::FiberScheduler::in_fiber()) {
    function();
    return true;
  }
  const auto call = std::make_shared<Handover>();
  scheduler_->spawn_remote([end = HandoverEnd(call), &function]() mutable { end.run(function); });
  return wait_for(*call);
}

bool Worker::call_without_fiber(const std::function<void()>& function) {
  if (on_worker()) {
    function();
    return true;
  }
  const auto call = std::make_shared<Handover>();
  scheduler_->post([end = HandoverEnd(call), &function]() mutable { end.run(function); });
  return wait_for(*call);
}

void Worker::spawn(fiber::Task body) {
  if (on_worker()) {
    static_cast<void>(scheduler_->spawn(std::move(body)));  // a body that was not taken tells by its destruction
  } else {
    scheduler_->spawn_remote(std::move(body));
  }
}

void Worker::stop() {
  if (!thread_.joinable()) return;
  scheduler_->stop();
  told_to_stop_.happen();
  thread_.join();
}

}  // namespace loam::rpc
