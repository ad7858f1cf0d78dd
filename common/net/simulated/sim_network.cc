// The network between the simulated transports: events in flight, and faults.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/assert.h"
#include "common/net/simulated/sim_network_impl.h"

namespace loam::net {
namespace {

SimNetwork* installed_network = nullptr;

/// Adds a value to the digest. The multiplication spreads changes to higher bits, the shift to lower ones.
uint64_t mix(uint64_t digest, uint64_t value) {
  digest = (digest ^ value) * 0x9e37'79b9'7f4a'7c15;
  return digest ^ (digest >> 32);
}

}  // namespace

// ---- SimQueue -------------------------------------------------------------------------------------------------------

void SimQueue::put(Entry entry) {
  heap_.push_back(entry);
  std::push_heap(heap_.begin(), heap_.end(), later);
}

SimEvent* SimQueue::pop_first() {
  std::pop_heap(heap_.begin(), heap_.end(), later);
  SimEvent* event = heap_.back().event;
  heap_.pop_back();
  return event;
}

void SimQueue::sort(std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return later(b, a); });
}

// ---- SimNetwork::Impl: hosts and connections ------------------------------------------------------------------------

SimNetwork::Impl::Impl(const SimNetworkOptions& network_options)
    : options(network_options), random(network_options.seed) {}

uint64_t SimNetwork::Impl::next_event_ns() const {
  uint64_t next_ns = kForever;
  for (const Host& host : hosts) {
    for (const SimTransport* transport : host.transports) next_ns = std::min(next_ns, transport->queue.first_ns());
  }
  return next_ns;
}

uint32_t SimNetwork::Impl::host_number(const std::string& name) {
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].name == name) return static_cast<uint32_t>(i);
  }
  hosts.emplace_back().name = name;
  return static_cast<uint32_t>(hosts.size() - 1);
}

SimNetwork::Impl::Route& SimNetwork::Impl::route(uint32_t from, uint32_t to) {
  std::vector<Route>& routes = hosts[from].routes;
  if (routes.size() <= to) routes.resize(hosts.size());
  return routes[to];
}

SimListener* SimNetwork::Impl::listener(uint32_t host, uint16_t port) const {
  for (SimListener* listener : hosts[host].listeners) {
    if (listener->address().port == port) return listener;
  }
  return nullptr;
}

ConnectionNumber SimNetwork::Impl::register_connection(SimConnection& connection) {
  if (free_slots.empty()) {
    free_slots.push_back(static_cast<uint32_t>(slots.size()));
    slots.emplace_back();
  }
  // The number contains the count of uses of the slot, so an event for an earlier connection of the slot finds
  // nothing.
  const uint32_t at = free_slots.back();
  free_slots.pop_back();
  Slot& slot = slots[at];
  slot.connection = &connection;
  ++slot.uses;
  return uint64_t{slot.uses} << 32 | at;
}

void SimNetwork::Impl::unregister_connection(ConnectionNumber number) {
  const auto at = static_cast<uint32_t>(number);
  slots[at].connection = nullptr;
  free_slots.push_back(at);
}

SimConnection* SimNetwork::Impl::find(ConnectionNumber number) const {
  const auto at = static_cast<uint32_t>(number);
  if (number == 0 || slots[at].uses != number >> 32) return nullptr;
  return slots[at].connection;
}

std::vector<SimConnection*> SimNetwork::Impl::connections_between(uint32_t a, uint32_t b) const {
  std::vector<SimConnection*> result;
  for (const Slot& slot : slots) {
    if (slot.connection == nullptr || slot.connection->partner == 0) continue;
    if (slot.connection->transport().host_at == a && slot.connection->peer_host == b) result.push_back(slot.connection);
  }
  return result;
}

// ---- SimNetwork::Impl: events ---------------------------------------------------------------------------------------

SimEvent* SimNetwork::Impl::new_event(SimEvent::Kind kind, uint32_t from, uint32_t to) {
  if (free_events.empty()) {
    events.push_back(std::make_unique<SimEvent>());
    free_events.push_back(events.back().get());
  }
  SimEvent* event = free_events.back();
  free_events.pop_back();
  event->kind = kind;
  event->from = from;
  event->to = to;
  event->connection = event->sender = 0;
  event->bytes.clear();
  return event;
}

void SimNetwork::Impl::free_event(SimEvent* event) { free_events.push_back(event); }

uint64_t SimNetwork::Impl::post(SimEvent* event, uint64_t not_before_ns) {
  // Step 1: a cut route holds the event. heal() posts it again and so draws its delay.
  const Route& found_route = route(event->from, event->to);
  if (found_route.cut) {
    route(event->from, event->to).held.push_back(event);
    return not_before_ns;
  }
  // Step 2: find the receiving transport. A request names its port, and any other event the number of its connection.
  SimTransport* transport = nullptr;
  if (event->kind == SimEvent::Kind::kRequest) {
    if (SimListener* found = listener(event->to, event->port)) transport = &found->transport;
  } else if (SimConnection* connection = find(event->connection)) {
    transport = &connection->transport();
  }
  if (transport == nullptr) {
    return_undeliverable(event);
    return not_before_ns;
  }
  // Step 3: draw the delay. `not_before_ns` keeps the order of a stream, and `sequence` orders events of the same time,
  // so that equal seeds give equal runs.
  uint64_t delay_ns = options.min_delay_ns + random() % (options.max_delay_ns - options.min_delay_ns + 1);
  delay_ns += found_route.extra_delay_ns;
  if (delay_hook) delay_ns += delay_hook(hosts[event->from].name, hosts[event->to].name, event->bytes);
  const uint64_t at_ns = std::max(now() + delay_ns, not_before_ns);
  digest = mix(mix(digest, at_ns), uint64_t{event->from} << 48 | uint64_t{event->to} << 32 | event->bytes.size());
  transport->enqueue({at_ns, ++sequence, event});
  return at_ns;
}

void SimNetwork::Impl::post_end(uint32_t from, uint32_t to, ConnectionNumber connection, Status status,
                                uint64_t not_before_ns) {
  SimEvent* event = new_event(SimEvent::Kind::kEnd, from, to);
  event->connection = connection;
  event->status = std::move(status);
  post(event, not_before_ns);
}

void SimNetwork::Impl::return_undeliverable(SimEvent* event) {
  // The receiver does not exist. A request is refused, and an accepted connection whose initiator is gone ends. Any
  // other event is lost.
  const SimEvent::Kind kind = event->kind;
  const uint32_t back_from = event->to, back_to = event->from;
  const ConnectionNumber connection = event->connection;
  if (kind == SimEvent::Kind::kAnswer) end_accepted(*event);
  free_event(event);
  if (kind == SimEvent::Kind::kRequest) {
    SimEvent* refusal = new_event(SimEvent::Kind::kAnswer, back_from, back_to);
    refusal->connection = connection;
    post(refusal, 0);
  }
}

void SimNetwork::Impl::end_accepted(const SimEvent& answer) {
  if (answer.sender == 0) return;
  post_end(answer.to, answer.from, answer.sender,
           {StatusCode::kUnavailable, "the peer sim://" + hosts[answer.to].name + " has given up connecting"}, 0);
}

// ---- SimNetwork::Impl: faults ---------------------------------------------------------------------------------------

void SimNetwork::Impl::cut(uint32_t from, uint32_t to) {
  Route& found_route = route(from, to);
  if (std::exchange(found_route.cut, true)) return;
  // The events in flight on this route wait for heal() in the order of their arrival.
  std::vector<SimQueue::Entry> waiting;
  for (SimTransport* transport : hosts[to].transports) {
    const auto taken =
        transport->queue.extract([&](const SimEvent& event) { return event.from == from && event.to == to; });
    waiting.insert(waiting.end(), taken.begin(), taken.end());
  }
  for (const SimQueue::Entry& entry : waiting) found_route.held.push_back(entry.event);
}

void SimNetwork::Impl::heal(uint32_t from, uint32_t to) {
  Route& found_route = route(from, to);
  found_route.cut = false;
  // post() draws new delays. last_arrival_ns keeps the order within a stream. The sender notes the arrival, so that its
  // later events do not overtake these.
  const std::vector<SimEvent*> held = std::exchange(found_route.held, {});
  std::map<ConnectionNumber, uint64_t> last_arrival_ns;  // by receiver: keeps the order of its stream
  for (SimEvent* event : held) {
    const ConnectionNumber receiver = event->connection, sender = event->sender;
    uint64_t& last_ns = last_arrival_ns[receiver];
    last_ns = post(event, last_ns);
    if (SimConnection* connection = find(sender))
      connection->last_arrival_ns = std::max(connection->last_arrival_ns, last_ns);
  }
}

void SimNetwork::Impl::break_held(std::vector<SimEvent*>& held, ConnectionNumber connection, bool keep) {
  // A broken stream loses its end, never its middle. So after the first lost event (`keep` is false) all are lost.
  std::erase_if(held, [&](SimEvent* event) {
    if (event->connection != connection || event->kind == SimEvent::Kind::kRequest) return false;
    keep = keep && random() % 2 == 0;
    if (!keep) free_event(event);
    return !keep;
  });
}

void SimNetwork::Impl::break_late(SimConnection& connection) {
  // From now on this side sends nothing.
  connection.partner = 0;
  SimTransport& transport = connection.transport();
  const auto tail = transport.queue.extract([&](const SimEvent& event) {
    return event.connection == connection.number && event.kind != SimEvent::Kind::kRequest;
  });
  // A random prefix of the events in flight still arrives, in half of the cases late. Then, at a time of its own, the
  // end arrives.
  const size_t kept = random() % (tail.size() + 1);
  const uint64_t late_ns = random() % 2 == 0 ? 0 : draw_end_delay();
  uint64_t last_ns = 0;
  for (size_t i = 0; i < tail.size(); ++i) {
    if (i < kept) {
      last_ns = tail[i].at_ns + late_ns;
      transport.enqueue({last_ns, tail[i].sequence, tail[i].event});
    } else {
      free_event(tail[i].event);
    }
  }
  break_held(route(connection.peer_host, transport.host_at).held, connection.number, kept == tail.size());
  const uint64_t end_ns = random() % 2 == 0 ? 0 : draw_end_delay();
  post_end(connection.peer_host, transport.host_at, connection.number,
           {StatusCode::kUnavailable, "the connection to " + connection.peer().to_string() + " was reset"},
           std::max(last_ns, now() + end_ns));
}

void SimNetwork::Impl::remove(SimTransport& transport, bool death) {
  // Step 1: the transport and its listeners leave the host, so no new event reaches them.
  Host& host = hosts[transport.host_at];
  std::erase(host.transports, &transport);
  std::erase_if(host.listeners, [&](const SimListener* listener) { return &listener->transport == &transport; });
  // Step 2: its connections leave the network. Each partner learns of the end after the last bytes, and after a death
  // at a time of its own, as from a real host.
  for (const Slot& slot : slots) {
    SimConnection* connection = slot.connection;
    if (connection == nullptr || &connection->transport() != &transport) continue;
    unregister_connection(std::exchange(connection->number, 0));
    const ConnectionNumber partner = std::exchange(connection->partner, 0);
    if (partner == 0) continue;
    const uint64_t late_ns = death ? now() + draw_end_delay() : 0;
    post_end(transport.host_at, connection->peer_host, partner,
             {StatusCode::kUnavailable,
              "the peer sim://" + host.name + (death ? " died" : " closed the connection without a goodbye")},
             std::max(connection->last_arrival_ns, late_ns));
  }
  // Step 3: the events in flight to it are lost. A request among them is refused.
  transport.dead = true;
  while (!transport.queue.empty()) return_undeliverable(transport.queue.pop_first());
}

// ---- SimNetwork -----------------------------------------------------------------------------------------------------

SimNetwork::SimNetwork(const SimNetworkOptions& options) : impl_(std::make_unique<Impl>(options)) {
  LOAM_CHECK(options.min_delay_ns <= options.max_delay_ns && options.pipe_bytes > 0, "options of a SimNetwork");
}

SimNetwork::~SimNetwork() {
  if (installed_network == this) installed_network = nullptr;
  // Transports and connections may outlive the network. Without a number, and with `dead`, they do not use it any more.
  for (const Impl::Slot& slot : impl_->slots) {
    if (slot.connection != nullptr) slot.connection->number = slot.connection->partner = 0;
  }
  for (const Impl::Host& host : impl_->hosts) {
    for (SimTransport* transport : host.transports) transport->dead = true;
  }
}

void SimNetwork::install(SimNetwork* network) { installed_network = network; }

SimNetwork* SimNetwork::installed() { return installed_network; }

Result<std::unique_ptr<Transport>> SimNetwork::make_transport(const std::string& host,
                                                              const TransportOptions& options) {
  LOAM_RETURN_IF_ERROR(check_options(options));
  return std::unique_ptr<Transport>(std::make_unique<SimTransport>(*impl_, impl_->host_number(host), options));
}

uint64_t SimNetwork::now_ns() const { return impl_->now(); }

void SimNetwork::advance_to(uint64_t now_ns) { impl_->clock_ns = std::max(impl_->clock_ns, now_ns); }

uint64_t SimNetwork::next_event_ns() const { return impl_->next_event_ns(); }

void SimNetwork::cut(const std::string& a, const std::string& b) {
  cut_one_way(a, b);
  cut_one_way(b, a);
}

void SimNetwork::cut_one_way(const std::string& from, const std::string& to) {
  const uint32_t from_at = impl_->host_number(from), to_at = impl_->host_number(to);
  impl_->cut(from_at, to_at);
}

void SimNetwork::heal(const std::string& a, const std::string& b) {
  const uint32_t a_at = impl_->host_number(a), b_at = impl_->host_number(b);
  impl_->heal(a_at, b_at);
  impl_->heal(b_at, a_at);
}

void SimNetwork::heal_all() {
  const auto count = static_cast<uint32_t>(impl_->hosts.size());
  for (uint32_t from = 0; from < count; ++from) {
    for (uint32_t to = 0; to < count; ++to) impl_->heal(from, to);
  }
}

void SimNetwork::set_extra_delay(const std::string& from, const std::string& to, uint64_t ns) {
  const uint32_t from_at = impl_->host_number(from), to_at = impl_->host_number(to);
  impl_->route(from_at, to_at).extra_delay_ns = ns;
}

void SimNetwork::drop_connections(const std::string& a, const std::string& b) {
  const uint32_t a_at = impl_->host_number(a), b_at = impl_->host_number(b);
  std::vector<SimConnection*> broken = impl_->connections_between(a_at, b_at);
  const std::vector<SimConnection*> others = impl_->connections_between(b_at, a_at);
  if (a_at != b_at) broken.insert(broken.end(), others.begin(), others.end());
  for (SimConnection* connection : broken) {
    connection->break_off("dropped by the network");
    connection->transport().request_poll();
  }
}

size_t SimNetwork::reset(const std::string& a, const std::string& b) {
  const uint32_t a_at = impl_->host_number(a), b_at = impl_->host_number(b);
  size_t count = 0;
  for (SimConnection* connection : impl_->connections_between(a_at, b_at)) {
    // Both sides are on one host, and break_late() of the partner has handled it.
    if (connection->partner == 0) continue;
    SimConnection* partner = impl_->find(connection->partner);
    ++count;
    impl_->break_late(*connection);
    if (partner != nullptr) impl_->break_late(*partner);
  }
  return count;
}

void SimNetwork::kill(const std::string& host) {
  // A copy, because remove() erases from the list of the host.
  const std::vector<SimTransport*> transports = impl_->hosts[impl_->host_number(host)].transports;
  for (SimTransport* transport : transports) impl_->remove(*transport, true);
}

void SimNetwork::set_delay_hook(DelayHook hook) { impl_->delay_hook = std::move(hook); }

uint64_t SimNetwork::digest() const { return impl_->digest; }

uint64_t SimNetwork::events() const { return impl_->sequence; }

}  // namespace loam::net
