#include "common/net/sim_transport.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/assert.h"
#include "common/net/transport_base.h"

namespace loam::net {
namespace {

/// Ports that listen() chooses from, as an operating system does.
constexpr uint16_t kFirstFreePort = 32'768;
constexpr size_t kMaxPieces = 64;
/// A stream's bytes travel in chunks of at most this size, so that faults can fall between them.
constexpr size_t kMaxChunkBytes = 16 * 1024;

class SimTransport;
class SimLink;
class SimListener;

using HostPair = std::pair<std::string, std::string>;

HostPair pair_of(const std::string& a, const std::string& b) { return a < b ? HostPair(a, b) : HostPair(b, a); }

}  // namespace

struct SimNetwork::Impl {
  /// Something that reaches a host. Times are when; `sequence` keeps the order of what happens at one time.
  struct Event {
    enum class Kind : uint8_t { kBytes, kEnd, kRequest, kAnswer };
    Kind kind = Kind::kBytes;
    std::string from, to;
    uint64_t link = 0;     // whom it reaches; kRequest: the link that wants to connect
    uint64_t partner = 0;  // kAnswer: the accepting link, 0 if refused
    uint16_t port = 0;     // kRequest
    Buffer bytes;          // kBytes
    Status status;         // kEnd
  };
  using Queue = std::map<std::pair<uint64_t, uint64_t>, Event>;

  explicit Impl(const SimNetworkOptions& given) : options(given), random(given.seed) {}

  uint64_t draw_delay() { return options.min_delay_ns + random() % (options.max_delay_ns - options.min_delay_ns + 1); }
  /// Puts the event on its way, no earlier than `not_before_ns`; returns when it arrives. Held while the hosts are cut.
  uint64_t post(Event event, uint64_t not_before_ns);
  bool is_cut(const std::string& a, const std::string& b) const { return cuts.contains(pair_of(a, b)); }

  const SimNetworkOptions options;
  std::mt19937_64 random;
  uint64_t now = 0;
  uint64_t sequence = 0;
  uint64_t next_link = 1;
  DelayHook delay_hook;
  std::map<std::string, SimTransport*> hosts;
  std::map<uint64_t, SimLink*> links;
  std::set<HostPair> cuts;
  std::vector<Event> held;  // of cut pairs, in order
};

namespace {

using Event = SimNetwork::Impl::Event;

class SimLink final : public Link {
 public:
  SimLink(SimTransport& transport, Handler& handler, Address peer, bool announced);
  ~SimLink() override;

  void on_event(Event& event);
  void connected_to(uint64_t partner, bool greet);
  void break_off(const char* why);
  /// What is sent from now on arrives after the times given, by link of the receiver.
  void note_arrival(const std::map<uint64_t, uint64_t>& arrivals);
  const std::string& host_name() const;

  const uint64_t id;
  std::string peer_host;

 private:
  friend class SimTransport;
  void transmit() override;

  SimTransport& transport_;
  uint64_t partner_ = 0;
  size_t in_flight_ = 0;          // bytes sent that the partner has not read
  uint64_t last_arrival_ns_ = 0;  // nothing overtakes what was sent before
};

class SimListener final : public Listener {
 public:
  SimListener(SimTransport& transport, Address address, std::span<const Transport::Share> shares)
      : transport_(transport), address_(std::move(address)), shares_(shares.begin(), shares.end()) {}
  const Address& address() const override { return address_; }
  void close() override;

  const Transport::Share& next() { return shares_[turn_++ % shares_.size()]; }

 private:
  SimTransport& transport_;
  const Address address_;
  const std::vector<Transport::Share> shares_;
  size_t turn_ = 0;
};

class SimTransport final : public TransportBase {
 public:
  SimTransport(SimNetwork::Impl& network, std::string host, const TransportOptions& options)
      : TransportBase(options), net(network), name(std::move(host)) {}
  ~SimTransport() override {
    drop_links();
    net.hosts.erase(name);
  }

  Result<Listener*> listen(const Address& address, std::span<const Share> shares) override;
  Result<Connection*> connect(const Address& address, Handler& handler) override;
  size_t poll(uint64_t timeout_ns) override;
  // relaxed: the flag alone matters, and the simulation has one thread.
  void wake() override { woken_.store(true, std::memory_order_relaxed); }

  using TransportBase::counters_;
  uint64_t now_ns() const override { return net.now; }
  void remove(uint16_t port) { listeners_.erase(port); }
  SimLink& adopt_sim(std::unique_ptr<SimLink> link) { return static_cast<SimLink&>(adopt(std::move(link))); }

  SimNetwork::Impl& net;
  const std::string name;
  SimNetwork::Impl::Queue queue;

 private:
  bool due() const { return !queue.empty() && queue.begin()->first.first <= net.now; }
  void on_request(Event& event);

  std::map<uint16_t, std::unique_ptr<SimListener>> listeners_;
  uint16_t next_port_ = kFirstFreePort;
  std::atomic<bool> woken_{false};
};

// ---- SimLink --------------------------------------------------------------------------------------------------------

SimLink::SimLink(SimTransport& transport, Handler& handler, Address peer, bool announced)
    : Link(transport, handler, peer, announced),
      id(transport.net.next_link++),
      peer_host(std::move(peer.host)),
      transport_(transport) {
  transport_.net.links.emplace(id, this);
}

SimLink::~SimLink() {
  transport_.net.links.erase(id);
  if (partner_ == 0) return;
  Event event;
  event.kind = Event::Kind::kEnd;
  event.from = transport_.name;
  event.to = peer_host;
  event.link = partner_;
  event.status = Status(StatusCode::kUnavailable,
                        "the peer sim://" + transport_.name + " closed the connection without a goodbye");
  transport_.net.post(std::move(event), last_arrival_ns_);
}

void SimLink::connected_to(uint64_t partner, bool greet) {
  partner_ = partner;
  start(greet);
}

void SimLink::break_off(const char* why) {
  partner_ = 0;
  fail({StatusCode::kUnavailable, "the connection to " + peer().to_string() + " broke: " + why});
}

void SimLink::note_arrival(const std::map<uint64_t, uint64_t>& arrivals) {
  const auto found = arrivals.find(partner_);
  if (found != arrivals.end()) last_arrival_ns_ = std::max(last_arrival_ns_, found->second);
}

const std::string& SimLink::host_name() const { return transport_.name; }

void SimLink::transmit() {
  std::array<iovec, kMaxPieces> pieces;
  SimNetwork::Impl& net = transport_.net;
  while (partner_ != 0 && in_flight_ < net.options.pipe_bytes) {
    const size_t count = gather(pieces.data(), pieces.size());
    if (count == 0) return;
    Event event;
    event.from = transport_.name;
    event.to = peer_host;
    event.link = partner_;
    const size_t room = std::min(net.options.pipe_bytes - in_flight_, kMaxChunkBytes);
    for (size_t i = 0; i < count && event.bytes.size() < room; ++i) {
      const auto* from = static_cast<const std::byte*>(pieces[i].iov_base);
      const size_t size = std::min(pieces[i].iov_len, room - event.bytes.size());
      event.bytes.insert(event.bytes.end(), from, from + size);
    }
    transport_.counters_.flushes.add(1);
    in_flight_ += event.bytes.size();
    const size_t size = event.bytes.size();
    last_arrival_ns_ = net.post(std::move(event), last_arrival_ns_);
    sent(size);
  }
}

void SimLink::on_event(Event& event) {
  switch (event.kind) {
    case Event::Kind::kAnswer:
      if (event.partner == 0) {
        transport_.counters_.refused.add(1);
        fail({StatusCode::kUnavailable,
              "cannot connect to " + peer().to_string() + ": nobody listens there; does the server run?"});
      } else if (state() == State::kOpening) {
        peer_host = event.from;
        connected_to(event.partner, true);
      }
      return;
    case Event::Kind::kEnd:
      partner_ = 0;
      fail(std::move(event.status));
      return;
    case Event::Kind::kRequest:
      return;
    case Event::Kind::kBytes:
      break;
  }
  const auto sender = transport_.net.links.find(partner_);
  if (sender != transport_.net.links.end()) {
    SimLink& from = *sender->second;
    from.in_flight_ -= event.bytes.size();
    if (from.state() == State::kOpen || from.state() == State::kGreeting) from.transmit();
  }
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

void SimListener::close() { transport_.remove(address_.port); }

Result<Listener*> SimTransport::listen(const Address& address, std::span<const Share> shares) {
  if (address.scheme != Scheme::kSim || address.host != name) {
    return Status(StatusCode::kInvalidArgument, address.to_string() + " is no address of host " + name);
  }
  for (const Share& share : shares) {
    if (share.handler == nullptr || dynamic_cast<SimTransport*>(share.transport) == nullptr) {
      return Status(StatusCode::kInvalidArgument, "a listening address is shared by sim transports with handlers only");
    }
  }
  Address real = address;
  if (real.port == 0) {
    while (listeners_.contains(next_port_)) ++next_port_;
    real.port = next_port_++;
  }
  if (listeners_.contains(real.port)) {
    return Status(StatusCode::kUnavailable,
                  "port " + std::to_string(real.port) + " of " + real.host +
                      " is in use; close its listener, or choose another port (0 takes a free one)");
  }
  const uint16_t port = real.port;
  auto listener = std::make_unique<SimListener>(*this, std::move(real), shares);
  return static_cast<Listener*>(listeners_.emplace(port, std::move(listener)).first->second.get());
}

Result<Connection*> SimTransport::connect(const Address& address, Handler& handler) {
  if (address.scheme != Scheme::kSim) {
    return Status(StatusCode::kInvalidArgument, address.to_string() + " is no address of the sim transport");
  }
  if (address.port == 0) {
    return Status(StatusCode::kInvalidArgument, address.to_string() + " has no port to connect to");
  }
  if (full()) {
    return Status(StatusCode::kOverloaded,
                  "the transport has its maximum of " + std::to_string(options().max_connections) + " connections");
  }
  SimLink& link = adopt_sim(std::make_unique<SimLink>(*this, handler, address, true));
  Event event;
  event.kind = Event::Kind::kRequest;
  event.from = name;
  event.to = address.host;
  event.link = link.id;
  event.port = address.port;
  link.last_arrival_ns_ = net.post(std::move(event), 0);
  return static_cast<Connection*>(&link);
}

void SimTransport::on_request(Event& event) {
  const auto listener = listeners_.find(event.port);
  Event answer;
  answer.kind = Event::Kind::kAnswer;
  answer.from = name;
  answer.to = event.from;
  answer.link = event.link;
  uint64_t arrival_ns = 0;
  SimLink* accepted = nullptr;
  if (listener != listeners_.end()) {
    const Share share = listener->second->next();
    auto& to = static_cast<SimTransport&>(*share.transport);
    if (!to.full()) {
      const Address peer{Scheme::kSim, event.from, 0};
      accepted = &to.adopt_sim(std::make_unique<SimLink>(to, *share.handler, peer, false));
      accepted->connected_to(event.link, false);
      answer.partner = accepted->id;
      answer.from = to.name;  // where the connecting side sends from now on
    }
  }
  arrival_ns = net.post(std::move(answer), 0);
  if (accepted != nullptr) accepted->last_arrival_ns_ = arrival_ns;
}

size_t SimTransport::poll(uint64_t timeout_ns) {
  counters_.polls.add(1);
  size_t events = attend_links();
  if (woken_.exchange(false, std::memory_order_relaxed) || wants_attention() || events > 0) timeout_ns = 0;
  check_handshakes();
  if (!due() && timeout_ns > 0) {
    // Nothing to do now: the clock moves to the next thing that happens anywhere.
    counters_.sleeps.add(1);
    uint64_t next = timeout_ns > kForever - net.now ? kForever : net.now + timeout_ns;
    for (const auto& [host, transport] : net.hosts) {
      if (!transport->queue.empty()) next = std::min(next, transport->queue.begin()->first.first);
    }
    if (next != kForever) net.now = std::max(net.now, next);
    check_handshakes();
  }
  while (due()) {
    auto node = queue.extract(queue.begin());
    Event& event = node.mapped();
    ++events;
    if (event.kind == Event::Kind::kRequest) {
      on_request(event);
    } else if (const auto link = net.links.find(event.link); link != net.links.end()) {
      link->second->on_event(event);
    }
  }
  events += attend_links();
  if (events == 0) counters_.empty_polls.add(1);
  return events;
}

}  // namespace

// ---- SimNetwork -----------------------------------------------------------------------------------------------------

uint64_t SimNetwork::Impl::post(Event event, uint64_t not_before_ns) {
  if (is_cut(event.from, event.to)) {
    held.push_back(std::move(event));
    return not_before_ns;
  }
  const auto host = hosts.find(event.to);
  if (host == hosts.end()) {
    // Nobody there: a request is refused, the rest is lost as on a dead host.
    if (event.kind != Event::Kind::kRequest) return not_before_ns;
    Event refusal;
    refusal.kind = Event::Kind::kAnswer;
    refusal.from = event.to;
    refusal.to = event.from;
    refusal.link = event.link;
    return post(std::move(refusal), not_before_ns);
  }
  uint64_t delay = draw_delay();
  if (delay_hook) delay += delay_hook(event.from, event.to, event.bytes);
  const uint64_t at = std::max(now + delay, not_before_ns);
  host->second->queue.emplace(std::pair(at, sequence++), std::move(event));
  return at;
}

SimNetwork::SimNetwork(const SimNetworkOptions& options) : impl_(std::make_unique<Impl>(options)) {
  LOAM_CHECK(options.min_delay_ns <= options.max_delay_ns && options.pipe_bytes > 0, "options of a SimNetwork");
}

SimNetwork::~SimNetwork() { LOAM_CHECK(impl_->hosts.empty(), "a SimNetwork outlives its transports"); }

Result<std::unique_ptr<Transport>> SimNetwork::make_transport(const std::string& host,
                                                              const TransportOptions& options) {
  LOAM_RETURN_IF_ERROR(check_options(options));
  if (impl_->hosts.contains(host)) {
    return Status(StatusCode::kInvalidArgument, "the simulated network has a host " + host + " already");
  }
  auto transport = std::make_unique<SimTransport>(*impl_, host, options);
  impl_->hosts.emplace(host, transport.get());
  return std::unique_ptr<Transport>(std::move(transport));
}

uint64_t SimNetwork::now_ns() const { return impl_->now; }

void SimNetwork::advance_to(uint64_t now_ns) { impl_->now = std::max(impl_->now, now_ns); }

uint64_t SimNetwork::next_event_ns() const {
  uint64_t next = kForever;
  for (const auto& [host, transport] : impl_->hosts) {
    if (!transport->queue.empty()) next = std::min(next, transport->queue.begin()->first.first);
  }
  return next;
}

void SimNetwork::cut(const std::string& a, const std::string& b) {
  impl_->cuts.insert(pair_of(a, b));
  for (const std::string& host : {a, b}) {
    const auto found = impl_->hosts.find(host);
    if (found == impl_->hosts.end()) continue;
    auto& queue = found->second->queue;
    for (auto it = queue.begin(); it != queue.end();) {
      if (pair_of(it->second.from, it->second.to) == pair_of(a, b)) {
        impl_->held.push_back(std::move(it->second));
        it = queue.erase(it);
      } else {
        ++it;
      }
    }
  }
}

void SimNetwork::heal(const std::string& a, const std::string& b) {
  impl_->cuts.erase(pair_of(a, b));
  std::vector<Impl::Event> held;
  held.swap(impl_->held);
  std::map<uint64_t, uint64_t> last_arrival_ns;  // of each link: the order of its stream is kept
  for (Impl::Event& event : held) {
    if (pair_of(event.from, event.to) != pair_of(a, b)) {
      impl_->held.push_back(std::move(event));
      continue;
    }
    uint64_t& last = last_arrival_ns[event.link];
    last = impl_->post(std::move(event), last);
  }
  for (const auto& [id, link] : impl_->links) link->note_arrival(last_arrival_ns);
}

void SimNetwork::drop_connections(const std::string& a, const std::string& b) {
  std::vector<SimLink*> broken;
  for (const auto& [id, link] : impl_->links) {
    if (pair_of(link->host_name(), link->peer_host) == pair_of(a, b)) broken.push_back(link);
  }
  for (SimLink* link : broken) link->break_off("dropped by the network");
}

void SimNetwork::set_delay_hook(DelayHook hook) { impl_->delay_hook = std::move(hook); }

}  // namespace loam::net
