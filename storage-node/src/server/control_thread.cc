// The connection to the commit manager: connect, drive the protocol, connect again, and react to a refusal.
// manager_protocol.cc has the messages.
#include "storage-node/src/server/control_thread.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/env.h"
#include "common/base/log.h"
#include "common/net/make_transport.h"

namespace loam::storage {
namespace {

/// Upper bound on a poll without pending work.
constexpr uint64_t kIdlePollNs = 100'000'000;
/// Upper bound on a poll while a change waits for the batches of other threads to end (R7, fence barrier).
constexpr uint64_t kWaitingPollNs = 100'000;
/// Bounds of the pause between two attempts to connect. It doubles from the lower bound to the upper one.
constexpr uint64_t kMinBackoffNs = 5'000'000;
constexpr uint64_t kMaxBackoffNs = 200'000'000;
/// Upper bound on the pause while a restarted commit manager waits for other storage nodes. It accepts registrations
/// once every storage node has reported, so each one registers twice, and the cluster serves again after the second
/// round (R10).
constexpr uint64_t kWaitingBackoffNs = 50'000'000;

}  // namespace

ControlThread::ControlThread(Registry& registry, SessionTable& sessions, EpochDomain& epochs,
                             std::function<void(const Status&)> on_replaced)
    : registry_(registry), sessions_(sessions), epochs_(epochs), on_replaced_(std::move(on_replaced)) {}

ControlThread::~ControlThread() { stop(); }

Status ControlThread::start(const net::Address& manager, const NodeIdentity& identity, uint64_t timeout_ns) {
  net::TransportOptions options;
  options.spin_ns = 0;  // one message in some milliseconds does not justify a spinning core
  LOAM_ASSIGN_OR_RETURN(transport_, net::make_transport(manager.scheme, options));
  thread_ = Thread("loam-control", [this, manager, identity] { loop(manager, identity); });

  std::unique_lock lock(mutex_);
  const bool answered =
      started_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [this] { return start_status_.has_value(); });
  if (answered && start_status_->ok()) return ok_status();
  Status status = answered ? *start_status_
                  : last_failure_.ok()
                      ? Status(StatusCode::kTimeout, "no reply from the commit manager at " + manager.to_string() +
                                                         " within " + std::to_string(timeout_ns / 1'000'000) + " ms")
                      : last_failure_;
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
  protocol_ = std::make_unique<ManagerProtocol>(registry_, sessions_, *epoch_thread_, identity, [this](Bytes message) {
    // The queue to the commit manager holds a few acknowledgements. If it is full, the commit manager does not read.
    if (connection_ == nullptr) return;
    if (Status sent = connection_->send(message); !sent.ok()) connection_->close(std::move(sent));
  });
  // Relaxed: see stop().
  while (!stopping_.load(std::memory_order_relaxed)) {
    const uint64_t now_ns = Env::now_ns();
    // One round: connect if that is due, advance the protocol, and poll until the next step is due.
    if (connection_ == nullptr && !replaced_ && now_ns >= connect_at_ns_) connect(manager, now_ns);
    const Result<bool> waiting = protocol_->step(now_ns);
    if (!waiting.ok() && connection_ != nullptr) connection_->close(waiting.status());
    if (protocol_->serving()) complete_start(ok_status());
    transport_->poll(poll_ns(now_ns, waiting.ok() && *waiting));
    epoch_thread_->collect(EpochThread::kFreesPerExit);
  }
  if (connection_ != nullptr) {
    connection_->close({StatusCode::kUnavailable, "the storage node is stopping"});
    transport_->poll(0);
  }
}

void ControlThread::connect(const net::Address& manager, uint64_t now_ns) {
  backoff_ns_ = std::clamp(backoff_ns_ * 2, kMinBackoffNs, kMaxBackoffNs);
  connect_at_ns_ = now_ns + backoff_ns_;
  auto connecting = transport_->connect(manager, *this);
  if (connecting.ok()) {
    connection_ = *connecting;
  } else if (connecting.code() == StatusCode::kInvalidArgument) {
    // The address is wrong, and another attempt would fail too. All other errors may pass.
    complete_start(connecting.status());
  } else {
    const std::scoped_lock lock(mutex_);
    last_failure_ = connecting.status();
  }
}

uint64_t ControlThread::poll_ns(uint64_t now_ns, bool waiting) const {
  if (waiting) return kWaitingPollNs;
  uint64_t until_ns = std::min(now_ns + kIdlePollNs, protocol_->next_step_ns());
  if (connection_ == nullptr && !replaced_) until_ns = std::min(until_ns, connect_at_ns_);
  return until_ns > now_ns ? until_ns - now_ns : 0;
}

void ControlThread::on_connected(net::Connection&) { protocol_->connected(Env::now_ns()); }

void ControlThread::on_messages(net::Connection& connection, std::span<const Bytes> messages) {
  const bool before = protocol_->registered();
  for (const Bytes message : messages) {
    Status status = protocol_->received(message, Env::now_ns());
    if (status.ok()) continue;
    connection.close(handle_registration_failure(std::move(status)));
    return;
  }
  if (before || !protocol_->registered()) return;
  {
    const std::scoped_lock lock(mutex_);
    known_ = protocol_->known();
    refusal_.clear();
  }
  backoff_ns_ = 0;
  last_error_.clear();
  connected_.store(true, std::memory_order_relaxed);  // relaxed: statistics
  if (was_registered_) {
    Env::probe("node.manager.found_again");
    reconnects_.fetch_add(1, std::memory_order_relaxed);  // relaxed: statistics
    const std::string manager = connection.peer().to_string();
    log_info("manager.reconnected", "the commit manager at " + manager + " has registered this storage node again",
             {{"manager", manager}});
  }
  was_registered_ = true;
}

void ControlThread::on_closed(net::Connection& connection, const Status& status) {
  connection_ = nullptr;
  connected_.store(false, std::memory_order_relaxed);  // relaxed: statistics
  protocol_->disconnected();
  const std::string text = "commit manager at " + connection.peer().to_string() + ": " + std::string(status.message());
  if (was_registered_ && !replaced_ && !stopping_.load(std::memory_order_relaxed) && last_error_ != text) {
    log_warning("manager.disconnected", "no connection to the " + text + "; trying again");
    last_error_ = text;
  }
  const std::scoped_lock lock(mutex_);
  last_failure_ = Status(status.code(), text);
}

Status ControlThread::handle_registration_failure(Status status) {
  switch (status.code()) {
    case StatusCode::kFenced:
      handle_replaced(status);
      return status;
    case StatusCode::kWrongCluster: {
      // A storage node without records has nothing to keep: its start fails.
      if (!was_registered_) break;
      const std::scoped_lock lock(mutex_);
      refusal_ = status.message();
      return {status.code(),
              refusal_ + "; this storage node keeps its records and serves again when its own commit manager is back"};
    }
    case StatusCode::kUnavailable:
      connect_at_ns_ = std::min(connect_at_ns_, Env::now_ns() + kWaitingBackoffNs);
      if (was_registered_) return status;
      if (last_error_ != status.message()) {
        log_info("node.waits_for_service", "not in service yet: " + std::string(status.message()));
      }
      last_error_ = status.message();
      // The commit manager waits for other storage nodes. start() returns kOk, because they may be started later.
      complete_start(ok_status());
      return status;
    default:
      break;
  }
  if (!was_registered_) complete_start(status);
  return status;
}

wire::HistoryPoint ControlThread::known() const {
  const std::scoped_lock lock(mutex_);
  return known_;
}

std::string ControlThread::refusal() const {
  const std::scoped_lock lock(mutex_);
  return refusal_;
}

void ControlThread::handle_replaced(const Status& status) {
  Env::probe("node.manager.replaced_this_node");
  replaced_ = true;
  registry_.leave_service();
  const Status why(status.code(), "the commit manager has replaced this storage node, so its records are obsolete: " +
                                      std::string(status.message()));
  log_error("node.replaced", std::string(why.message()));
  complete_start(why);
  if (was_registered_ && on_replaced_) on_replaced_(why);
}

void ControlThread::complete_start(Status status) {
  const std::scoped_lock lock(mutex_);
  if (start_status_.has_value()) return;
  start_status_ = std::move(status);
  started_.notify_all();
}

}  // namespace loam::storage
