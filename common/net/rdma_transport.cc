#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>

#include "common/base/assert.h"
#include "common/net/rdma_error.h"
#include "common/net/rdma_transport_impl.h"

namespace loam::net {
namespace {

/// Marks of epoll events. A completion channel has the address of its device, the device's other events have it with
/// kDeviceMark.
constexpr uint64_t kBellMark = 2;
constexpr uint64_t kCmMark = 4;
constexpr uint64_t kDeviceMark = 1;
constexpr int kMaxEvents = 64;
/// Completions taken at once, and how often in one round.
constexpr size_t kMaxCompletions = 64;
constexpr int kMaxDrains = 16;
/// Events of rdma_cm handled in one round: each costs system calls.
constexpr int kMaxCmEvents = 64;
/// Descriptors cost a system call, and what they tell is rare: they are looked at in every so many-th look, and when a
/// sleep has ended. The core is offered to others as often.
constexpr unsigned kLookInterval = 16;
constexpr int kBacklog = 1024;
/// Time for last words, and interval of looking whether they are sent.
constexpr uint64_t kLingerNs = 1'000'000'000;
constexpr uint64_t kSweepNs = 1'000'000;

CmEvent copy_of(const rdma_cm_event& event) {
  CmEvent copy{.type = event.event, .status = event.status, .hello = {}};
  switch (event.event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_REJECTED:
      // May be padded with zeros.
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
                  " is no address of an RDMA device of this host; 'rdma link' and 'ip address' show what there is"};
    }
    return verbs_failed("listening on " + address.to_string(), error);
  };
  if (rdma_bind_addr(id_, found.front().get()) != 0) return failed(errno);
  if (rdma_listen(id_, kBacklog) != 0) return failed(errno);
  // What would keep every connection from being accepted is told now. (An address of no one device has no context.)
  if (id_->verbs != nullptr) {
    LOAM_ASSIGN_OR_RETURN(RdmaDevice* const device, transport_.device_of(id_->verbs));
    LOAM_RETURN_IF_ERROR(device->add_path());
    device->remove_path();
  }
  address_ = address;
  address_.port = ntohs(rdma_get_src_port(id_));
  return ok_status();
}

void RdmaTransport::remove(RdmaListener& listener) {
  std::erase_if(listeners_, [&](const auto& owned) { return owned.get() == &listener; });
}

// ---- RdmaTransport --------------------------------------------------------------------------------------------------

RdmaTransport::RdmaTransport(const TransportOptions& options, Fd epoll, Fd bell, rdma_event_channel* channel)
    : TransportBase(Scheme::kRdma, options),
      waiter_(std::move(epoll), std::move(bell), kLookInterval),
      channel_(channel) {
  watch(waiter_.bell_fd(), kBellMark);
  watch(channel_->fd, kCmMark);
}

RdmaTransport::~RdmaTransport() {
  drop_links();
  for (const Handed& handed : handed_) rdma_destroy_id(handed.id);
  listeners_.clear();
  for (std::unique_ptr<RdmaPath>& path : lingering_) destroy(std::move(path));
  lingering_.clear();
  devices_.clear();
  rdma_destroy_event_channel(channel_);
}

void RdmaTransport::watch(int fd, uint64_t mark) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = mark;
  const int result = epoll_ctl(waiter_.epoll_fd(), EPOLL_CTL_ADD, fd, &event);
  // Without memory in the system the device is not watched, and its requests time out. All other errors are about the
  // arguments, which come from this transport alone.
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

Result<Listener*> RdmaTransport::listen(const Address& address, std::span<const Share> shares) {
  LOAM_RETURN_IF_ERROR(check_listen(address, shares));
  auto listener = std::make_unique<RdmaListener>(*this, shares);
  LOAM_RETURN_IF_ERROR(listener->open(address));
  listeners_.push_back(std::move(listener));
  return static_cast<Listener*>(listeners_.back().get());
}

Result<Connection*> RdmaTransport::connect(const Address& address, Handler& handler) {
  LOAM_RETURN_IF_ERROR(check_connect(address));
  auto owned = std::make_unique<RdmaLink>(*this, handler, address, true);
  RdmaLink& link = *owned;
  adopt(std::move(owned));
  if (auto found = resolve_number(address)) {
    link.connect(std::move(*found));
  } else {
    link.connect_by_name();
  }
  return static_cast<Connection*>(&link);
}

void RdmaTransport::deal(RdmaListener& listener, rdma_cm_id* id, const CmEvent& request) {
  const Share& share = listener.next();
  auto& to = static_cast<RdmaTransport&>(*share.transport);
  if (&to == this) {
    take(id, request, *share.handler);
    return;
  }
  id->context = nullptr;  // nobody's, until the other has it
  {
    const std::lock_guard lock(to.handed_mutex_);
    to.handed_.push_back({id, request, share.handler});
  }
  to.wake();
}

size_t RdmaTransport::take_handed() {
  std::vector<Handed> handed;
  {
    const std::lock_guard lock(handed_mutex_);
    handed.swap(handed_);
  }
  for (const Handed& one : handed) {
    if (rdma_migrate_id(one.id, channel_) == 0) {
      take(one.id, one.request, *one.handler);
    } else {
      counters_.connections_refused.add(1);
      rdma_destroy_id(one.id);
    }
  }
  return handed.size();
}

void RdmaTransport::take(rdma_cm_id* id, const CmEvent& request, Handler& handler) {
  auto path = std::make_unique<RdmaPath>(*this, id);
  Status status = full() ? Status(StatusCode::kOverloaded, "") : path->make_queue_pair();
  if (!status.ok()) {
    counters_.connections_refused.add(1);
    Greeting greeting;
    greeting.protocol_version = options().protocol_version;
    greeting.kind = GreetingKind::kReject;
    greeting.code = static_cast<uint32_t>(status.code());
    static_cast<void>(path->greet(greeting, false));
    linger(std::move(path));
    return;
  }
  Address peer = peer_of(id).to_address();
  peer.scheme = Scheme::kRdma;
  auto owned = std::make_unique<RdmaLink>(*this, handler, std::move(peer), false);
  RdmaLink& link = *owned;
  adopt(std::move(owned));
  link.accept(std::move(path), request);
}

// ---- paths ----------------------------------------------------------------------------------------------------------

void RdmaTransport::note_ready(RdmaPath& path) {
  if (path.ready_) return;
  path.ready_ = true;
  ready_.push_back(&path);
}

void RdmaTransport::note_starved(RdmaPath& path) {
  if (path.starved_) return;
  path.starved_ = true;
  starved_.push_back(&path);
}

void RdmaTransport::attend_paths() {
  std::swap(ready_, attending_);
  for (RdmaPath* path : attending_) {
    path->ready_ = false;
    if (path->link() != nullptr) {
      path->link()->network_ready();
    } else {
      path->push();
    }
  }
  attending_.clear();
}

void RdmaTransport::linger(std::unique_ptr<RdmaPath> path) {
  path->linger(now_ns() + kLingerNs);
  lingering_.push_back(std::move(path));
}

void RdmaTransport::destroy(std::unique_ptr<RdmaPath> path) {
  // A number of a queue pair may come back: nothing of this one may be in the queue then.
  if (path->device() != nullptr) drain(*path->device());
  if (path->ready_) std::erase(ready_, path.get());
  if (path->starved_) std::erase(starved_, path.get());
}

uint64_t RdmaTransport::probe_interval_ns() const { return options().peer_timeout_ns / 4; }

void RdmaTransport::probe_paths(uint64_t now) {
  if (now < next_probe_ns_) return;
  next_probe_ns_ = now + probe_interval_ns();
  for (const auto& device : devices_) {
    for (const auto& [number, path] : device->paths) path->probe();  // ends connections, and never takes a path away
  }
}

void RdmaTransport::sweep() {
  const uint64_t now = now_ns();
  probe_paths(now);
  if (lingering_.empty()) return;
  std::vector<std::unique_ptr<RdmaPath>> finished;
  std::erase_if(lingering_, [&](std::unique_ptr<RdmaPath>& path) {
    if (!path->finished(now)) return false;
    finished.push_back(std::move(path));
    return true;
  });
  for (std::unique_ptr<RdmaPath>& path : finished) destroy(std::move(path));
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
      const auto found = device.paths.find(completion.qp_num);
      if ((completion.wr_id & 1) != 0) {
        sent = true;
        if (found != device.paths.end()) found->second->on_sent(completion.status);
        continue;
      }
      auto& chunk = *reinterpret_cast<Chunk*>(completion.wr_id);
      if (found != device.paths.end()) found->second->on_received(chunk, completion);
      device.repost(chunk);
      ++events;
    }
    if (count < static_cast<int>(kMaxCompletions)) break;
  }
  if (turn == kMaxDrains) ++events;  // there may be more: whoever wants to sleep looks again
  device.flush_receives();
  if (sent) {  // there may be chunks again
    for (RdmaPath* path : starved_) {
      path->starved_ = false;
      note_ready(*path);
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
    // Until the event is given back, a transport that the identifier was handed to waits in rdma_migrate_id(): so what
    // is read here is nobody's, and never a path of that one's.
    auto* const source = static_cast<CmSource*>(id->context);
    rdma_ack_cm_event(event);
    if (source == nullptr) continue;
    if (source->kind == CmSource::Kind::kPath) {
      static_cast<RdmaPath*>(source)->on_cm_event(copy);
    } else if (copy.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      // The new identifier has the listener's context.
      deal(*static_cast<RdmaListener*>(source), id, copy);
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
    if (mark == kBellMark) {
      if (waiter_.drain_bell()) counters_.wakes.add(1);
    } else if (mark == kCmMark) {
      events += handle_cm_events();
    } else if ((mark & kDeviceMark) != 0) {
      reinterpret_cast<RdmaDevice*>(mark & ~kDeviceMark)->take_events();
    } else {
      reinterpret_cast<RdmaDevice*>(mark)->take_notifications();
    }
  }
  return events;
}

int RdmaTransport::look(Descriptors descriptors) {
  int events = 0;
  for (size_t i = 0; i < devices_.size(); ++i) events += drain(*devices_[i]);
  if (descriptors == Descriptors::kHandle ||
      (descriptors == Descriptors::kNowAndThen && ++looks_ % kLookInterval == 0)) {
    events += handle_descriptors();
  }
  if (!ready_.empty()) attend_paths();
  // A send's completion may end a connection, which counts as an event when it is told: not after a sleep.
  return events == 0 && wants_attention() ? 1 : events;
}

/// What happens after one of these points, and before the thread is in the kernel, still ends the sleep:
///
///  - wake(): the waiter has set asleep_ and then found wake_pending_ false, so a wake() that sets it after that sees
///    asleep_ and rings the bell. Only handle_descriptors() takes a ring back, and the next wake() rings no more before
///    poll() has taken wake_pending_: whoever drained the bell here would sleep through all of them.
///  - a completion: the queue is armed, and looked at after that. One that the look finds has disarmed it, but is an
///    event, or a send's, which changes nothing that a sleep waits for unless a link wants attention. In that case an
///    event lies in the channel, and the sleep ends at once. Only handle_descriptors() takes events off the channel: if
///    it did so here, with a completion that came after the look, the sleep would begin with a queue that is not armed.
///  - news of rdma_cm or of a device stay readable until handle_descriptors() reads them.
///
/// All descriptors are watched level-triggered, so what is readable when the sleep begins ends it.
int RdmaTransport::sleep(uint64_t timeout_ns) {
  for (const auto& device : devices_) device->arm();
  const int events = look(Descriptors::kLeave);
  if (events != 0) return events;
  counters_.sleeps.add(1);
  epoll_event event;
  if (waiter_.sleep_on_epoll(&event, 1, timeout_ns) <= 0) return 0;
  return look(Descriptors::kHandle);
}

int RdmaTransport::wait(uint64_t timeout_ns) {
  return waiter_.wait(
      timeout_ns, options().spin_ns, [this] { return look(Descriptors::kNowAndThen); },
      [this](uint64_t sleep_ns) { return sleep(sleep_ns); });
}

size_t RdmaTransport::poll(uint64_t timeout_ns) {
  counters_.polls.add(1);
  size_t events = attend_links();
  attend_paths();
  bool woken = waiter_.take_wake();
  if (woken || wants_attention() || events > 0) timeout_ns = 0;
  timeout_ns = std::min(timeout_ns, check_handshakes());
  if (wants_attention()) timeout_ns = 0;  // the end of a handshake that came to nothing is told now
  if (!lingering_.empty()) timeout_ns = std::min(timeout_ns, kSweepNs);
  if (link_count() > 0) timeout_ns = std::min(timeout_ns, probe_interval_ns());

  events += static_cast<size_t>(std::max(wait(timeout_ns), 0));
  if (timeout_ns > 0) woken |= waiter_.take_wake();  // this poll has returned for it
  if (woken) events += take_handed() + lookups_.take();
  events += attend_links();
  attend_paths();
  sweep();
  if (events == 0) counters_.empty_polls.add(1);
  return events;
}

}  // namespace loam::net
