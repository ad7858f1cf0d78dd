// The transports of the simulated network and their connections. sim_network.cc has the network between them.

#include "common/net/simulated/sim_transport.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/net/simulated/sim_network_impl.h"

namespace loam::net {
namespace {

/// The first of the ports from which listen() chooses a free one.
constexpr uint16_t kFirstFreePort = 32'768;
constexpr size_t kMaxPieces = 64;
/// Largest chunk of bytes in flight. A stream is split into chunks, so that a fault can occur between any two of them.
constexpr size_t kMaxChunkBytes = 16 * 1024;
#ifdef LOAM_ENV_SIM
/// Number of consecutive polls without a wait and without an event after which a thread sleeps for kIdleSleepNs.
/// Without the sleep, time would not pass for the other threads, for which it may be waiting.
constexpr uint32_t kIdleTurns = 16;
constexpr uint64_t kIdleSleepNs = 1'000;
#endif

}  // namespace

// ---- SimConnection --------------------------------------------------------------------------------------------------

SimConnection::SimConnection(SimTransport& transport, Handler& handler, Address peer, bool announced,
                             uint32_t peer_host_number)
    : ConnectionBase(transport, handler, std::move(peer), announced),
      peer_host(peer_host_number),
      transport_(transport) {
  number = transport.net.register_connection(*this);
}

SimConnection::~SimConnection() {
  if (number == 0) return;
  SimNetwork::Impl& net = transport_.net;
  net.unregister_connection(number);
  if (partner == 0) return;
  net.post_end(transport_.host_at, peer_host, partner,
               {StatusCode::kUnavailable,
                "the peer sim://" + transport_.host_name() + " closed the connection without a goodbye"},
               last_arrival_ns);
}

void SimConnection::connected_to(ConnectionNumber with, bool greet) {
  partner = with;
  start(greet);
}

void SimConnection::break_off(const char* why) {
  partner = 0;
  fail({StatusCode::kUnavailable, "the connection to " + peer().to_string() + " broke: " + why});
}

void SimConnection::transmit() {
  std::array<iovec, kMaxPieces> pieces;
  SimNetwork::Impl& net = transport_.net;
  while (partner != 0) {
    // The pipe is full, like the buffer of a socket. on_bytes_consumed() makes this side continue.
    if (in_flight_ >= net.options.pipe_bytes) {
      stopped_ = true;
      return;
    }
    const size_t count = gather(pieces.data(), pieces.size());
    if (count == 0) return;
    SimEvent* event = net.new_event(SimEvent::Kind::kBytes, transport_.host_at, peer_host);
    event->connection = partner;
    event->sender = number;
    const size_t room = std::min(net.options.pipe_bytes - in_flight_, kMaxChunkBytes);
    for (size_t i = 0; i < count && event->bytes.size() < room; ++i) {
      const auto* from = static_cast<const std::byte*>(pieces[i].iov_base);
      const size_t size = std::min(pieces[i].iov_len, room - event->bytes.size());
      event->bytes.insert(event->bytes.end(), from, from + size);
    }
    transport_.counters_.flushes.add(1);
    const size_t size = event->bytes.size();
    in_flight_ += size;
    last_arrival_ns = net.post(event, last_arrival_ns);
    sent(size);
  }
}

void SimConnection::on_bytes_consumed(size_t size, SimConnection& receiver) {
  in_flight_ -= size;
  // The sender learns of the room by an event with a delay of its own, as by a window update of TCP.
  if (!stopped_ || in_flight_ > transport_.net.options.pipe_bytes / 2) return;
  stopped_ = false;
  SimEvent* event =
      transport_.net.new_event(SimEvent::Kind::kWritable, receiver.transport_.host_at, transport_.host_at);
  event->connection = number;
  event->sender = receiver.number;
  receiver.last_arrival_ns = transport_.net.post(event, receiver.last_arrival_ns);
}

void SimConnection::on_event(SimEvent& event) {
  switch (event.kind) {
    case SimEvent::Kind::kAnswer:
      if (state() != State::kOpening) {
        // The owner has closed this side while the reply was in flight, so the accepted side must end too.
        transport_.net.end_accepted(event);
      } else if (event.sender == 0) {
        transport_.counters_.connections_refused.add(1);
        fail({StatusCode::kUnavailable, "cannot connect to " + peer().to_string() +
                                            ": connection refused; does the server run, and listen there?"});
      } else {
        peer_host = event.from;
        connected_to(event.sender, true);
      }
      return;
    case SimEvent::Kind::kEnd:
      partner = 0;
      fail(std::move(event.status));
      return;
    case SimEvent::Kind::kWritable:
      if (state() == State::kOpen || state() == State::kGreeting) transmit();
      return;
    case SimEvent::Kind::kBytes:
      on_bytes(event);
      return;
    case SimEvent::Kind::kRequest:
      return;
  }
}

void SimConnection::on_bytes(const SimEvent& event) {
  // The bytes have left the pipe, whether or not the handler reads them.
  if (SimConnection* sender = transport_.net.find(event.sender)) sender->on_bytes_consumed(event.bytes.size(), *this);
  Bytes rest(event.bytes);
  while (!rest.empty() && state() != State::kEnded) {
    const MutableBytes space = input_space();
    const size_t size = std::min(space.size(), rest.size());
    std::memcpy(space.data(), rest.data(), size);
    rest = rest.subspan(size);
    received(size);
  }
}

// ---- SimTransport ---------------------------------------------------------------------------------------------------

SimTransport::SimTransport(SimNetwork::Impl& network, uint32_t host_number, const TransportOptions& options)
    : TransportBase(Scheme::kSim, options), net(network), host_at(host_number) {
  net.hosts[host_at].transports.push_back(this);
}

SimTransport::~SimTransport() {
  if (!dead) net.remove(*this, false);
  drop_connections();
}

void SimListener::close() { transport.remove(*this); }

void SimTransport::remove(const SimListener& listener) {
  if (!dead) std::erase(net.hosts[host_at].listeners, &listener);
  std::erase_if(listeners_, [&](const auto& owned) { return owned.get() == &listener; });
}

Result<Listener*> SimTransport::listen(const Address& address, std::span<const AcceptTarget> targets) {
  LOAM_RETURN_IF_ERROR(check_listen(address, targets));
  if (address.host != host_name()) {
    return Status(StatusCode::kInvalidArgument, address.to_string() + " is not an address of host " + host_name());
  }
  SimNetwork::Impl::Host& host = net.hosts[host_at];
  Address real = address;
  if (real.port == 0) {
    host.next_port = std::max(host.next_port, kFirstFreePort);
    while (net.listener(host_at, host.next_port) != nullptr) ++host.next_port;
    real.port = host.next_port++;
  }
  if (net.listener(host_at, real.port) != nullptr) {
    return Status(StatusCode::kUnavailable,
                  "port " + std::to_string(real.port) + " of " + real.host +
                      " is in use; close its listener, or choose another port (0 takes a free one)");
  }
  listeners_.push_back(std::make_unique<SimListener>(*this, std::move(real), targets));
  host.listeners.push_back(listeners_.back().get());
  return static_cast<Listener*>(listeners_.back().get());
}

Result<Connection*> SimTransport::connect(const Address& address, Handler& handler) {
  LOAM_RETURN_IF_ERROR(check_connect(address));
  const uint32_t to = net.host_number(address.host);
  SimConnection& connection = adopt_sim(std::make_unique<SimConnection>(*this, handler, address, true, to));
  SimEvent* event = net.new_event(SimEvent::Kind::kRequest, host_at, to);
  event->connection = connection.number;
  event->sender = connection.number;
  event->port = address.port;
  connection.last_arrival_ns = net.post(event, 0);
  return static_cast<Connection*>(&connection);
}

void SimTransport::on_request(const SimEvent& event) {
  SimListener* listener = net.listener(host_at, event.port);
  SimConnection* accepted = nullptr;
  if (listener != nullptr) {
    const AcceptTarget& target = listener->next();
    auto& to = static_cast<SimTransport&>(*target.transport);
    if (!to.dead && !to.full()) {
      const Address peer{Scheme::kSim, net.hosts[event.from].name, 0};
      accepted = &to.adopt_sim(std::make_unique<SimConnection>(to, *target.handler, peer, false, event.from));
      accepted->connected_to(event.connection, false);
      if (&to != this) to.wake();  // its poll() must take the handshake deadline into account
    }
  }
  // The reply comes from the host of the accepted connection, which sends all later events of this direction.
  SimEvent* answer =
      net.new_event(SimEvent::Kind::kAnswer, accepted == nullptr ? host_at : accepted->transport().host_at, event.from);
  answer->connection = event.connection;
  answer->sender = accepted == nullptr ? 0 : accepted->number;
  const uint64_t arrival_ns = net.post(answer, 0);
  if (accepted != nullptr) accepted->last_arrival_ns = arrival_ns;
}

void SimTransport::notify_arrival(uint64_t at_ns) {
  if (at_ns >= announced_ns_ || !net.options.on_arrival) return;
  announced_ns_ = at_ns;
  net.options.on_arrival(host_name(), place(), at_ns);
}

void SimTransport::enqueue(SimQueue::Entry entry) {
  queue.put(entry);
  if (waiting_) notify_arrival(entry.at_ns);
}

void SimTransport::request_poll() {
  woken_.store(true, std::memory_order_relaxed);  // relaxed: see woken_
  if (waiting_) notify_arrival(net.now());
}

void SimTransport::wake() {
  woken_.store(true, std::memory_order_relaxed);  // relaxed: see woken_
#ifdef LOAM_ENV_SIM
  if (waiting_) sim_scheduler->wake(place());
#endif
}

void SimTransport::wait(uint64_t timeout_ns) {
  counters_.sleeps.add(1);
#ifdef LOAM_ENV_SIM
  if (net.options.now_ns && sim_scheduler != nullptr) {
    const uint64_t from_ns = Env::now_ns();
    const uint64_t until_ns = timeout_ns > kForever - from_ns ? kForever : from_ns + timeout_ns;
    // With the simulator's clock, the thread tests all conditions again after each wake-up, because a cut or a death
    // may have removed the event for which it was woken. So each iteration announces the earliest event anew.
    waiting_ = true;
    // relaxed: see woken_
    while (!dead && !due() && !woken_.load(std::memory_order_relaxed) && Env::now_ns() < until_ns) {
      announced_ns_ = kForever;
      notify_arrival(queue.first_ns());
      sim_scheduler->block(place(), until_ns);
    }
    waiting_ = false;
    woken_.store(false, std::memory_order_relaxed);
    return;
  }
#endif
  // Outside of the simulator the owner of the clock advances the time, not this thread.
  if (net.options.now_ns) return;
  // Nothing is due, so the clock advances to the next event of any host.
  const uint64_t until_ns = timeout_ns > kForever - net.clock_ns ? kForever : net.clock_ns + timeout_ns;
  const uint64_t next_ns = std::min(until_ns, net.next_event_ns());
  if (next_ns != kForever) net.clock_ns = std::max(net.clock_ns, next_ns);
}

size_t SimTransport::poll(uint64_t timeout_ns) {
  if (dead) return 0;
  counters_.polls.add(1);
  const bool may_wait = timeout_ns > 0;
  // Phase 1: send what the owner has committed since the last round, and report connections that have ended.
  size_t events = service_connections();
  // relaxed: see woken_
  if (woken_.exchange(false, std::memory_order_relaxed) || events > 0) timeout_ns = 0;
  const uint64_t handshake_ns = check_handshakes();
  if (has_pending_service()) timeout_ns = 0;
  // Phase 2: wait for an event.
  if (timeout_ns > 0 && !due()) {
    wait(net.options.now_ns ? std::min(timeout_ns, handshake_ns) : timeout_ns);
    check_handshakes();
  }
  // Phase 3: handle all events that are due. A handler may kill this process, after which nothing more is handled.
  while (!dead && due()) {
    SimEvent* event = queue.pop_first();
    ++events;
    if (event->kind == SimEvent::Kind::kRequest) {
      on_request(*event);
    } else if (SimConnection* connection = net.find(event->connection)) {
      connection->on_event(*event);
    } else if (event->kind == SimEvent::Kind::kAnswer) {
      net.return_undeliverable(event);
      continue;
    }
    net.free_event(event);
  }
  // Phase 4: send what the handlers have committed in this round.
  events += service_connections();
  if (events == 0) counters_.empty_polls.add(1);
#ifdef LOAM_ENV_SIM
  idle_turns_ = events > 0 || may_wait ? 0 : idle_turns_ + 1;
  if (idle_turns_ == kIdleTurns && sim_scheduler != nullptr) {
    idle_turns_ = 0;
    sim_scheduler->block(nullptr, Env::now_ns() + kIdleSleepNs);
  }
#else
  static_cast<void>(may_wait);
#endif
  return events;
}

}  // namespace loam::net
