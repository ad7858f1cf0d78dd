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

SimEvent* SimQueue::take_first() {
  std::pop_heap(heap_.begin(), heap_.end(), later);
  SimEvent* event = heap_.back().event;
  heap_.pop_back();
  return event;
}

void SimQueue::sort(std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return later(b, a); });
}

// ---- SimNetwork::Impl: hosts and connections ------------------------------------------------------------------------

SimNetwork::Impl::Impl(const SimNetworkOptions& given) : options(given), random(given.seed) {}

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

ConnectionNumber SimNetwork::Impl::register_connection(SimConnection& link) {
  if (free_slots.empty()) {
    free_slots.push_back(static_cast<uint32_t>(slots.size()));
    slots.emplace_back();
  }
  const uint32_t at = free_slots.back();
  free_slots.pop_back();
  Slot& slot = slots[at];
  slot.link = &link;
  ++slot.uses;
  return uint64_t{slot.uses} << 32 | at;
}

void SimNetwork::Impl::unregister_connection(ConnectionNumber number) {
  const auto at = static_cast<uint32_t>(number);
  slots[at].link = nullptr;
  free_slots.push_back(at);
}

SimConnection* SimNetwork::Impl::find(ConnectionNumber number) const {
  const auto at = static_cast<uint32_t>(number);
  if (number == 0 || slots[at].uses != number >> 32) return nullptr;
  return slots[at].link;
}

std::vector<SimConnection*> SimNetwork::Impl::connections_between(uint32_t a, uint32_t b) const {
  std::vector<SimConnection*> result;
  for (const Slot& slot : slots) {
    if (slot.link == nullptr || slot.link->partner == 0) continue;
    if (slot.link->transport().host_at == a && slot.link->peer_host == b) result.push_back(slot.link);
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
  event->link = event->sender = 0;
  event->bytes.clear();
  return event;
}

void SimNetwork::Impl::free_event(SimEvent* event) { free_events.push_back(event); }

uint64_t SimNetwork::Impl::post(SimEvent* event, uint64_t not_before_ns) {
  const Route& found_route = route(event->from, event->to);
  if (found_route.cut) {
    route(event->from, event->to).held.push_back(event);
    return not_before_ns;
  }
  SimTransport* transport = nullptr;
  if (event->kind == SimEvent::Kind::kRequest) {
    if (SimListener* found = listener(event->to, event->port)) transport = &found->transport;
  } else if (SimConnection* link = find(event->link)) {
    transport = &link->transport();
  }
  if (transport == nullptr) {
    return_undeliverable(event);
    return not_before_ns;
  }
  uint64_t delay_ns = options.min_delay_ns + random() % (options.max_delay_ns - options.min_delay_ns + 1);
  delay_ns += found_route.extra_delay_ns;
  if (delay_hook) delay_ns += delay_hook(hosts[event->from].name, hosts[event->to].name, event->bytes);
  const uint64_t at_ns = std::max(now() + delay_ns, not_before_ns);
  digest = mix(mix(digest, at_ns), uint64_t{event->from} << 48 | uint64_t{event->to} << 32 | event->bytes.size());
  transport->enqueue({at_ns, ++sequence, event});
  return at_ns;
}

void SimNetwork::Impl::post_end(uint32_t from, uint32_t to, ConnectionNumber link, Status status,
                                uint64_t not_before_ns) {
  SimEvent* event = new_event(SimEvent::Kind::kEnd, from, to);
  event->link = link;
  event->status = std::move(status);
  post(event, not_before_ns);
}

void SimNetwork::Impl::return_undeliverable(SimEvent* event) {
  // The receiver does not exist. A request is refused, and an accepted connection whose initiator is gone ends. Any
  // other event is lost.
  const SimEvent::Kind kind = event->kind;
  const uint32_t back_from = event->to, back_to = event->from;
  const ConnectionNumber link = event->link;
  if (kind == SimEvent::Kind::kAnswer) end_accepted(*event);
  free_event(event);
  if (kind == SimEvent::Kind::kRequest) {
    SimEvent* refusal = new_event(SimEvent::Kind::kAnswer, back_from, back_to);
    refusal->link = link;
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
  const std::vector<SimEvent*> held = std::exchange(found_route.held, {});
  std::map<ConnectionNumber, uint64_t> last_arrival_ns;  // by receiver: keeps the order of its stream
  for (SimEvent* event : held) {
    const ConnectionNumber receiver = event->link, sender = event->sender;
    uint64_t& last_ns = last_arrival_ns[receiver];
    last_ns = post(event, last_ns);
    if (SimConnection* link = find(sender)) link->last_arrival_ns = std::max(link->last_arrival_ns, last_ns);
  }
}

void SimNetwork::Impl::break_held(std::vector<SimEvent*>& held, ConnectionNumber link, bool keep) {
  std::erase_if(held, [&](SimEvent* event) {
    if (event->link != link || event->kind == SimEvent::Kind::kRequest) return false;
    keep = keep && random() % 2 == 0;
    if (!keep) free_event(event);
    return !keep;
  });
}

void SimNetwork::Impl::break_late(SimConnection& link) {
  link.partner = 0;
  SimTransport& transport = link.transport();
  const auto tail = transport.queue.extract(
      [&](const SimEvent& event) { return event.link == link.number && event.kind != SimEvent::Kind::kRequest; });
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
  break_held(route(link.peer_host, transport.host_at).held, link.number, kept == tail.size());
  const uint64_t end_ns = random() % 2 == 0 ? 0 : draw_end_delay();
  post_end(link.peer_host, transport.host_at, link.number,
           {StatusCode::kUnavailable, "the connection to " + link.peer().to_string() + " was reset"},
           std::max(last_ns, now() + end_ns));
}

void SimNetwork::Impl::remove(SimTransport& transport, bool death) {
  Host& host = hosts[transport.host_at];
  std::erase(host.transports, &transport);
  std::erase_if(host.listeners, [&](const SimListener* listener) { return &listener->transport == &transport; });
  for (const Slot& slot : slots) {
    SimConnection* link = slot.link;
    if (link == nullptr || &link->transport() != &transport) continue;
    unregister_connection(std::exchange(link->number, 0));
    const ConnectionNumber partner = std::exchange(link->partner, 0);
    if (partner == 0) continue;
    const uint64_t late_ns = death ? now() + draw_end_delay() : 0;
    post_end(transport.host_at, link->peer_host, partner,
             {StatusCode::kUnavailable,
              "the peer sim://" + host.name + (death ? " died" : " closed the connection without a goodbye")},
             std::max(link->last_arrival_ns, late_ns));
  }
  transport.dead = true;
  while (!transport.queue.empty()) return_undeliverable(transport.queue.take_first());
}

// ---- SimNetwork -----------------------------------------------------------------------------------------------------

SimNetwork::SimNetwork(const SimNetworkOptions& options) : impl_(std::make_unique<Impl>(options)) {
  LOAM_CHECK(options.min_delay_ns <= options.max_delay_ns && options.pipe_bytes > 0, "options of a SimNetwork");
}

SimNetwork::~SimNetwork() {
  if (installed_network == this) installed_network = nullptr;
  for (const Impl::Slot& slot : impl_->slots) {
    if (slot.link != nullptr) slot.link->number = slot.link->partner = 0;
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
  for (SimConnection* link : broken) {
    link->break_off("dropped by the network");
    link->transport().request_poll();
  }
}

size_t SimNetwork::reset(const std::string& a, const std::string& b) {
  const uint32_t a_at = impl_->host_number(a), b_at = impl_->host_number(b);
  size_t count = 0;
  for (SimConnection* link : impl_->connections_between(a_at, b_at)) {
    if (link->partner == 0) continue;  // both sides are on one host, and break_late() of the partner has handled it
    SimConnection* partner = impl_->find(link->partner);
    ++count;
    impl_->break_late(*link);
    if (partner != nullptr) impl_->break_late(*partner);
  }
  return count;
}

void SimNetwork::kill(const std::string& host) {
  const std::vector<SimTransport*> transports = impl_->hosts[impl_->host_number(host)].transports;
  for (SimTransport* transport : transports) impl_->remove(*transport, true);
}

void SimNetwork::set_delay_hook(DelayHook hook) { impl_->delay_hook = std::move(hook); }

uint64_t SimNetwork::digest() const { return impl_->digest; }

uint64_t SimNetwork::events() const { return impl_->sequence; }

}  // namespace loam::net
