// Listening, polling and lingering queue pairs of the transport over verbs. rdma_connection.cc has one connection,
// rdma_queue_pair.cc its work requests, and rdma_device.cc the memory and the queues.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>

#include "common/base/assert.h"
#include "common/net/rdma/rdma_error.h"
#include "common/net/rdma/rdma_transport_impl.h"

namespace loam::net {
namespace {

/// Marks of epoll events. The mark of a completion channel is the address of its device; the mark of the device's own
/// events is that address with kDeviceMark added.
constexpr uint64_t kWakeupMark = 2;
constexpr uint64_t kCmMark = 4;
constexpr uint64_t kDeviceMark = 1;
constexpr int kMaxEvents = 64;
/// Completions read from a device in one call.
constexpr size_t kMaxCompletions = 64;
/// Number of such calls in one round.
constexpr int kMaxDrains = 16;
/// Events of rdma_cm handled in one round. Each takes system calls.
constexpr int kMaxCmEvents = 64;
/// While the thread spins, it checks descriptors once in this number of iterations, and after a sleep. A check is a
/// system call, and events of descriptors are rare. The thread yields its core at the same interval.
constexpr unsigned kDescriptorPollInterval = 16;
/// Number of connection requests that rdma_cm queues.
constexpr int kBacklog = 1024;
/// Longest time for which a queue pair may still send the last output of its connection.
constexpr uint64_t kLingerNs = 1'000'000'000;
/// Interval between checks of lingering queue pairs.
constexpr uint64_t kReapIntervalNs = 1'000'000;

CmEvent copy_of(const rdma_cm_event& event) {
  CmEvent copy{.type = event.event, .status = event.status, .hello = {}};
  switch (event.event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_REJECTED:
      // The private data may be padded with zeros.
      copy.has_hello = event.param.conn.private_data_len >= sizeof(RdmaHello);
      if (copy.has_hello) std::memcpy(&copy.hello, event.param.conn.private_data, sizeof(RdmaHello));
      break;
    default:
      break;
  }
  return copy;
}

SocketAddress peer_of(rdma_cm_id* id) {
  SocketAddress peer;
  const sockaddr* from = rdma_get_peer_addr(id);
  peer.size = from->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&peer.storage, from, peer.size);
  return peer;
}

}  // namespace

// ---- RdmaListener ---------------------------------------------------------------------------------------------------

void RdmaListener::close() { transport_.remove(*this); }

Status RdmaListener::open(const Address& address) {
  LOAM_ASSIGN_OR_RETURN(std::vector<SocketAddress> found, resolve(address));
  if (rdma_create_id(transport_.channel(), &id_, static_cast<CmSource*>(this), RDMA_PS_TCP) != 0) {
    return verbs_failed("making an identifier of rdma_cm", errno);
  }
  const auto failed = [&](int error) -> Status {
    const std::string port = std::to_string(address.port);
    if (error == EADDRINUSE) {
      return {StatusCode::kUnavailable,
              "cannot listen on " + address.to_string() + ": port " + port +
                  " is in use by another program; stop it, or choose another port (0 takes a free one)"};
    }
    if (error == EADDRNOTAVAIL || error == ENODEV) {
      return {StatusCode::kInvalidArgument,
              "cannot listen on " + address.to_string() + ": " + address.host +
                  " is not an address of an RDMA device of this host; check with 'rdma link' and 'ip address'"};
    }
    return verbs_failed("listening on " + address.to_string(), error);
  };
  if (rdma_bind_addr(id_, found.front().get()) != 0) return failed(errno);
  if (rdma_listen(id_, kBacklog) != 0) return failed(errno);
  // Opens the device and posts receive buffers now, so that listen() reports an error that would prevent every
  // connection. A wildcard address belongs to no single device and has no context.
  if (id_->verbs != nullptr) {
    LOAM_ASSIGN_OR_RETURN(RdmaDevice* const device, transport_.device_of(id_->verbs));
    LOAM_RETURN_IF_ERROR(device->add_queue_pair());
    device->remove_queue_pair();
  }
  address_ = address;
  address_.port = ntohs(rdma_get_src_port(id_));
  return ok_status();
}

void RdmaTransport::remove(RdmaListener& listener) {
  std::erase_if(listeners_, [&](const auto& owned) { return owned.get() == &listener; });
}

// ---- RdmaTransport --------------------------------------------------------------------------------------------------

RdmaTransport::RdmaTransport(const TransportOptions& options, Fd epoll, Fd wakeup, rdma_event_channel* channel)
    : TransportBase(Scheme::kRdma, options),
      waiter_(std::move(epoll), std::move(wakeup), kDescriptorPollInterval),
      channel_(channel) {
  watch(waiter_.wakeup_fd(), kWakeupMark);
  watch(channel_->fd, kCmMark);
}

RdmaTransport::~RdmaTransport() {
  // Connections leave their queue pairs in lingering_. The queue pairs are destroyed before the devices that they use.
  drop_connections();
  for (const Handoff& handed : handoffs_) rdma_destroy_id(handed.id);
  listeners_.clear();
  for (std::unique_ptr<RdmaQueuePair>& queue_pair : lingering_) destroy(std::move(queue_pair));
  lingering_.clear();
  devices_.clear();
  rdma_destroy_event_channel(channel_);
}

void RdmaTransport::watch(int fd, uint64_t mark) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = mark;
  const int result = epoll_ctl(waiter_.epoll_fd(), EPOLL_CTL_ADD, fd, &event);
  // If the system is out of memory, the device is not watched, and its requests time out. All other errors concern
  // the arguments, which come from this transport only.
  LOAM_CHECK(result == 0 || errno == ENOSPC || errno == ENOMEM, "epoll_ctl");
}

Result<RdmaDevice*> RdmaTransport::device_of(ibv_context* context) {
  for (const auto& device : devices_) {
    if (device->context() == context) return device.get();
  }
  LOAM_ASSIGN_OR_RETURN(std::unique_ptr<RdmaDevice> device, RdmaDevice::open(context, counters_.buffer_allocations));
  watch(device->descriptor(), reinterpret_cast<uintptr_t>(device.get()));
  watch(device->event_descriptor(), reinterpret_cast<uintptr_t>(device.get()) | kDeviceMark);
  devices_.push_back(std::move(device));
  return devices_.back().get();
}

Result<Listener*> RdmaTransport::listen(const Address& address, std::span<const AcceptTarget> targets) {
  LOAM_RETURN_IF_ERROR(check_listen(address, targets));
  auto listener = std::make_unique<RdmaListener>(*this, targets);
  LOAM_RETURN_IF_ERROR(listener->open(address));
  listeners_.push_back(std::move(listener));
  return static_cast<Listener*>(listeners_.back().get());
}

Result<Connection*> RdmaTransport::connect(const Address& address, Handler& handler) {
  LOAM_RETURN_IF_ERROR(check_connect(address));
  auto owned = std::make_unique<RdmaConnection>(*this, handler, address, true);
  RdmaConnection& connection = *owned;
  adopt(std::move(owned));
  if (auto found = resolve_number(address)) {
    connection.connect(std::move(*found));
  } else {
    connection.connect_by_name();
  }
  return static_cast<Connection*>(&connection);
}

void RdmaTransport::dispatch(RdmaListener& listener, rdma_cm_id* id, const CmEvent& request) {
  const AcceptTarget& target = listener.next();
  auto& to = static_cast<RdmaTransport&>(*target.transport);
  if (&to == this) {
    accept_connection(id, request, *target.handler);
    return;
  }
  id->context = nullptr;  // handle_cm_events() ignores its events until the other transport owns it
  {
    const std::lock_guard lock(to.handoffs_mutex_);
    to.handoffs_.push_back({id, request, target.handler});
  }
  to.wake();
}

size_t RdmaTransport::accept_handoffs() {
  std::vector<Handoff> handed;
  {
    const std::lock_guard lock(handoffs_mutex_);
    handed.swap(handoffs_);
  }
  for (const Handoff& one : handed) {
    if (rdma_migrate_id(one.id, channel_) == 0) {
      accept_connection(one.id, one.request, *one.handler);
    } else {
      counters_.connections_refused.add(1);
      rdma_destroy_id(one.id);
    }
  }
  return handed.size();
}

void RdmaTransport::accept_connection(rdma_cm_id* id, const CmEvent& request, Handler& handler) {
  auto queue_pair = std::make_unique<RdmaQueuePair>(*this, id);
  Status status = full() ? Status(StatusCode::kOverloaded, "") : queue_pair->make_queue_pair();
  if (!status.ok()) {
    counters_.connections_refused.add(1);
    Greeting greeting;
    greeting.protocol_version = options().protocol_version;
    greeting.kind = GreetingKind::kReject;
    greeting.code = static_cast<uint32_t>(status.code());
    static_cast<void>(queue_pair->greet(greeting, false));
    linger(std::move(queue_pair));
    return;
  }
  Address peer = peer_of(id).to_address();
  peer.scheme = Scheme::kRdma;
  auto owned = std::make_unique<RdmaConnection>(*this, handler, std::move(peer), false);
  RdmaConnection& connection = *owned;
  adopt(std::move(owned));
  connection.accept(std::move(queue_pair), request);
}

// ---- queue pairs ----------------------------------------------------------------------------------------------------

void RdmaTransport::note_ready(RdmaQueuePair& queue_pair) {
  if (queue_pair.ready_) return;
  queue_pair.ready_ = true;
  ready_.push_back(&queue_pair);
}

void RdmaTransport::note_starved(RdmaQueuePair& queue_pair) {
  if (queue_pair.starved_) return;
  queue_pair.starved_ = true;
  starved_.push_back(&queue_pair);
}

void RdmaTransport::service_queue_pairs() {
  std::swap(ready_, servicing_);
  for (RdmaQueuePair* queue_pair : servicing_) {
    queue_pair->ready_ = false;
    if (queue_pair->connection() != nullptr) {
      queue_pair->connection()->network_ready();
    } else {
      queue_pair->push();
    }
  }
  servicing_.clear();
}

void RdmaTransport::linger(std::unique_ptr<RdmaQueuePair> queue_pair) {
  queue_pair->linger(now_ns() + kLingerNs);
  lingering_.push_back(std::move(queue_pair));
}

void RdmaTransport::destroy(std::unique_ptr<RdmaQueuePair> queue_pair) {
  // The system may reuse the number of the queue pair. So no completion of this one may remain in the queue.
  if (queue_pair->device() != nullptr) drain(*queue_pair->device());
  if (queue_pair->ready_) std::erase(ready_, queue_pair.get());
  if (queue_pair->starved_) std::erase(starved_, queue_pair.get());
}

uint64_t RdmaTransport::probe_interval_ns() const { return options().peer_timeout_ns / 4; }

void RdmaTransport::probe_queue_pairs(uint64_t now) {
  if (now < next_probe_ns_) return;
  next_probe_ns_ = now + probe_interval_ns();
  for (const auto& device : devices_) {
    for (const auto& [number, queue_pair] : device->queue_pairs)
      queue_pair->probe();  // may end a connection, but never removes a queue pair from this map
  }
}

void RdmaTransport::reap_lingering() {
  const uint64_t now = now_ns();
  probe_queue_pairs(now);
  if (lingering_.empty()) return;
  std::vector<std::unique_ptr<RdmaQueuePair>> finished;
  std::erase_if(lingering_, [&](std::unique_ptr<RdmaQueuePair>& queue_pair) {
    if (!queue_pair->finished(now)) return false;
    finished.push_back(std::move(queue_pair));
    return true;
  });
  for (std::unique_ptr<RdmaQueuePair>& queue_pair : finished) destroy(std::move(queue_pair));
}

// ---- polling --------------------------------------------------------------------------------------------------------

int RdmaTransport::drain(RdmaDevice& device) {
  std::array<ibv_wc, kMaxCompletions> completions;
  int events = 0;
  bool sent = false;
  int turn = 0;
  for (; turn < kMaxDrains; ++turn) {
    const int count = std::max(device.poll(completions), 0);
    for (const ibv_wc& completion : std::span(completions).first(static_cast<size_t>(count))) {
      const auto found = device.queue_pairs.find(completion.qp_num);
      if ((completion.wr_id & 1) != 0) {
        sent = true;
        if (found != device.queue_pairs.end()) found->second->on_sent(completion.status);
        continue;
      }
      auto& buffer = *reinterpret_cast<RdmaBuffer*>(completion.wr_id);
      if (found != device.queue_pairs.end()) found->second->on_received(buffer, completion);
      device.repost(buffer);
      ++events;
    }
    if (count < static_cast<int>(kMaxCompletions)) break;
  }
  if (turn == kMaxDrains) ++events;  // more completions may remain, so the caller must not sleep
  device.flush_receives();
  if (sent) {  // completions of sends have released buffers
    for (RdmaQueuePair* queue_pair : starved_) {
      queue_pair->starved_ = false;
      note_ready(*queue_pair);
    }
    starved_.clear();
  }
  return events;
}

int RdmaTransport::handle_cm_events() {
  for (int count = 0; count < kMaxCmEvents; ++count) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) return count;
    const CmEvent copy = copy_of(*event);
    rdma_cm_id* const id = event->id;
    // If the identifier was handed to another transport, that transport waits in rdma_migrate_id() until this event
    // is acknowledged. So the context read here is still null, and never a queue pair of the other transport.
    auto* const source = static_cast<CmSource*>(id->context);
    rdma_ack_cm_event(event);
    if (source == nullptr) continue;
    if (source->kind == CmSource::Kind::kQueuePair) {
      static_cast<RdmaQueuePair*>(source)->on_cm_event(copy);
    } else if (copy.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      // The identifier of the new connection has the context of the listener.
      dispatch(*static_cast<RdmaListener*>(source), id, copy);
    }
  }
  return kMaxCmEvents;
}

int RdmaTransport::handle_descriptors() {
  std::array<epoll_event, kMaxEvents> found;
  const int count = epoll_wait(waiter_.epoll_fd(), found.data(), kMaxEvents, 0);
  int events = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t mark = found[static_cast<size_t>(i)].data.u64;
    if (mark == kWakeupMark) {
      if (waiter_.drain_wakeup()) counters_.wakes.add(1);
    } else if (mark == kCmMark) {
      events += handle_cm_events();
    } else if ((mark & kDeviceMark) != 0) {
      reinterpret_cast<RdmaDevice*>(mark & ~kDeviceMark)->drain_events();
    } else {
      reinterpret_cast<RdmaDevice*>(mark)->drain_notifications();
    }
  }
  return events;
}

int RdmaTransport::poll_once(DescriptorPolling descriptors) {
  int events = 0;
  for (size_t i = 0; i < devices_.size(); ++i) events += drain(*devices_[i]);
  if (descriptors == DescriptorPolling::kAlways ||
      (descriptors == DescriptorPolling::kPeriodically && ++descriptor_polls_ % kDescriptorPollInterval == 0)) {
    events += handle_descriptors();
  }
  if (!ready_.empty()) service_queue_pairs();
  // The completion of a send may end a connection. poll() must report that now, not after a sleep.
  return events == 0 && has_pending_service() ? 1 : events;
}

/// Sleeps until an event. No event is lost that occurs between the last check and the begin of the sleep in the kernel:
///
///  * wake(): EventWaiter has set asleep_ and then found wake_pending_ false. So a later wake() that sets
///    wake_pending_ sees asleep_ and writes to the eventfd. Only handle_descriptors() reads the eventfd. It must not
///    do so here: wake() does not write again before poll() has cleared wake_pending_, so the sleep would miss this
///    wake-up and all later ones.
///  * A completion: sleep() arms the queue first and then checks it. A completion that the check finds has used up
///    the notification. If it is a receive, it is an event, and sleep() returns. If it is a send, it changes nothing
///    for which a sleep waits, unless a connection needs service; the notification is in the channel, so the sleep
///    ends at once. Only handle_descriptors() removes notifications from the channel. It must not do so here: with a
///    completion that arrives after the check, the sleep would begin with a queue that is not armed.
///  * An event of rdma_cm or of a device makes its descriptor readable until handle_descriptors() reads it.
///
/// epoll watches all descriptors level-triggered, so a descriptor that is readable at the begin of the sleep ends it.
int RdmaTransport::sleep(uint64_t timeout_ns) {
  for (const auto& device : devices_) device->arm();
  const int events = poll_once(DescriptorPolling::kSkip);
  if (events != 0) return events;
  counters_.sleeps.add(1);
  epoll_event event;
  if (waiter_.sleep_on_epoll(&event, 1, timeout_ns) <= 0) return 0;
  return poll_once(DescriptorPolling::kAlways);
}

int RdmaTransport::wait(uint64_t timeout_ns) {
  return waiter_.wait(
      timeout_ns, options().spin_ns, [this] { return poll_once(DescriptorPolling::kPeriodically); },
      [this](uint64_t sleep_ns) { return sleep(sleep_ns); });
}

size_t RdmaTransport::poll(uint64_t timeout_ns) {
  counters_.polls.add(1);
  // Phase 1: send what the owner has committed since the last round, and report connections that have ended. After
  // such a report the round does not wait, so that the owner can react at once.
  size_t events = service_connections();
  service_queue_pairs();
  bool woken = waiter_.consume_wake();
  if (woken || has_pending_service() || events > 0) timeout_ns = 0;
  // Phase 2: limit the wait by the next deadline of a handshake, by reap_lingering() and by the probes of idle peers.
  timeout_ns = std::min(timeout_ns, check_handshakes());
  if (has_pending_service()) timeout_ns = 0;  // check_handshakes() has ended a connection, which is reported now
  if (!lingering_.empty()) timeout_ns = std::min(timeout_ns, kReapIntervalNs);
  if (connection_count() > 0) timeout_ns = std::min(timeout_ns, probe_interval_ns());

  // Phase 3: wait, and handle completions and descriptors.
  events += static_cast<size_t>(std::max(wait(timeout_ns), 0));
  if (timeout_ns > 0) woken |= waiter_.consume_wake();  // a wake-up that has ended this wait
  // Phase 4: take what other threads have left before they called wake().
  if (woken) events += accept_handoffs() + host_resolver_.poll();
  // Phase 5: send what the handlers have committed in this round.
  events += service_connections();
  service_queue_pairs();
  reap_lingering();
  if (events == 0) counters_.empty_polls.add(1);
  return events;
}

}  // namespace loam::net
