#include "storage-node/src/server/control_thread.h"

#include <chrono>
#include <utility>

#include <pthread.h>

#include "common/base/log.h"
#include "common/net/tcp_transport.h"

namespace loam::storage {
namespace {

constexpr uint64_t kIdlePollNs = 100'000'000;
/// While a catalog change waits for the other threads' batches to end.
constexpr uint64_t kWaitingPollNs = 100'000;

}  // namespace

ControlThread::ControlThread(Registry& registry, EpochDomain& epochs) : registry_(registry), epochs_(epochs) {}

ControlThread::~ControlThread() { stop(); }

Status ControlThread::start(const net::Address& manager, const NodeIdentity& identity, uint64_t timeout_ns) {
  net::TransportOptions options;
  options.spin_ns = 0;  // a message every few milliseconds is not worth a core
  LOAM_ASSIGN_OR_RETURN(transport_, net::make_tcp_transport(options));
  thread_ = std::thread([this, manager, identity] { loop(manager, identity); });
  pthread_setname_np(thread_.native_handle(), "loam-control");

  std::unique_lock lock(mutex_);
  const bool answered =
      started_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [this] { return start_status_.has_value(); });
  if (answered && start_status_->ok()) return ok_status();
  Status status = answered
                      ? *start_status_
                      : Status(StatusCode::kTimeout, "no answer from the commit manager at " + manager.to_string() +
                                                         " within " + std::to_string(timeout_ns / 1'000'000) + " ms");
  lock.unlock();
  stop();
  return status;
}

void ControlThread::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_relaxed);  // relaxed: wake() and join() order what matters
  transport_->wake();
  thread_.join();
}

void ControlThread::loop(const net::Address& manager, const NodeIdentity& identity) {
  epoch_thread_ = std::make_unique<EpochThread>(epochs_, "control");
  link_ = std::make_unique<ManagerLink>(registry_, *epoch_thread_, identity, [this](Bytes message) {
    // The queue to the commit manager holds a few acknowledgements; if it is full the connection is as good as dead.
    if (connection_ == nullptr) return;
    if (Status sent = connection_->send(message); !sent.ok()) connection_->close(std::move(sent));
  });
  auto connecting = transport_->connect(manager, *this);
  if (connecting.ok()) {
    connection_ = *connecting;
  } else {
    tell_start(connecting.status());
  }
  // Relaxed: see stop().
  while (!stopping_.load(std::memory_order_relaxed)) {
    const bool waiting = link_->step();
    transport_->poll(waiting ? kWaitingPollNs : kIdlePollNs);
    epoch_thread_->collect(EpochThread::kFreesPerExit);
  }
  if (connection_ != nullptr) {
    connection_->close({StatusCode::kUnavailable, "the storage node is stopping"});
    transport_->poll(0);
  }
}

void ControlThread::on_connected(net::Connection&) { link_->connected(); }

void ControlThread::on_messages(net::Connection& connection, std::span<const Bytes> messages) {
  for (const Bytes message : messages) {
    Status status = link_->received(message);
    if (!status.ok()) {
      tell_start(status);
      connection.close(std::move(status));
      return;
    }
    if (link_->registered()) tell_start(ok_status());
  }
}

void ControlThread::on_closed(net::Connection& connection, const Status& status) {
  connection_ = nullptr;
  const std::string text = "commit manager at " + connection.peer().to_string() + ": " + std::string(status.message());
  if (link_->registered() && !stopping_.load(std::memory_order_relaxed)) {
    log_error("the connection to the " + text +
              "; new tables do not reach this node any more, and nothing more is collected: restart the cluster");
  }
  tell_start({status.code(), text});
}

void ControlThread::tell_start(Status status) {
  const std::lock_guard lock(mutex_);
  if (start_status_.has_value()) return;
  start_status_ = std::move(status);
  started_.notify_all();
}

}  // namespace loam::storage
