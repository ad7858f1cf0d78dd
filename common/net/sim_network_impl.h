// The simulated network's insides: what is on its way, hosts, links, transports. Internal.
//
//   transmit() of a link ──SimEvent──▶ queue of the transport that it reaches ──poll()──▶ on_event() of the link
//
// A link finds its partner by number (LinkNumber), never by pointer: the other side may be gone, or its process dead,
// whenever something arrives. Events are taken from a pool and keep the memory of their bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/net/sim_transport.h"
#include "common/net/transport_base.h"

namespace loam::net {

class SimTransport;
class SimLink;
class SimListener;

/// Names a link for ever: its slot in the network's table below, and how often the slot had been used. 0 is none.
using LinkNumber = uint64_t;

/// Something on its way to a link, or (kRequest) to a port of a host. Owned by the network's pool, a transport's queue
/// or a cut way.
struct SimEvent {
  enum class Kind : uint8_t {
    kBytes,
    kSpace,    ///< the partner has read enough that there is room on the way to it
    kEnd,      ///< with `status`
    kRequest,  ///< to be connected, for `link` of the sender
    kAnswer,   ///< from `sender`, 0: refused
  };
  Kind kind = Kind::kBytes;
  uint16_t port = 0;
  uint32_t from = 0, to = 0;  // hosts
  LinkNumber link = 0;
  LinkNumber sender = 0;
  Buffer bytes;
  Status status;
};

/// What reaches a transport, the earliest first; `sequence` keeps the order of what arrives at one time.
class SimQueue {
 public:
  struct Entry {
    uint64_t at_ns = 0;
    uint64_t sequence = 0;
    SimEvent* event = nullptr;
  };

  bool empty() const { return heap_.empty(); }
  uint64_t first_ns() const { return heap_.empty() ? kForever : heap_.front().at_ns; }
  void put(Entry entry);
  SimEvent* take_first();
  /// Takes out what `chosen` says, in the order of arrival.
  template <class Chosen>
  std::vector<Entry> extract(Chosen chosen) {
    std::vector<Entry> taken, rest;
    for (const Entry& entry : heap_) (chosen(*entry.event) ? taken : rest).push_back(entry);
    heap_.clear();
    for (const Entry& entry : rest) put(entry);
    sort(taken);
    return taken;
  }

 private:
  static void sort(std::vector<Entry>& entries);
  static bool later(const Entry& a, const Entry& b) {
    return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.sequence > b.sequence;
  }

  std::vector<Entry> heap_;
};

struct SimNetwork::Impl {
  /// From one host to another.
  struct Way {
    uint64_t extra_delay_ns = 0;
    bool cut = false;
    std::vector<SimEvent*> held;  // while it is cut, in order
  };
  struct Host {
    std::string name;
    std::vector<SimTransport*> transports;  // in the order of their making
    std::vector<SimListener*> listeners;
    uint16_t next_port = 0;
    std::vector<Way> ways;  // by host that they lead to; may be shorter than the list of hosts
  };
  struct Slot {
    SimLink* link = nullptr;
    uint32_t uses = 0;
  };

  explicit Impl(const SimNetworkOptions& given);

  uint64_t now() const { return options.now_ns ? options.now_ns() : clock_ns; }
  uint64_t next_event_ns() const;

  uint32_t host_number(const std::string& name);
  Way& way(uint32_t from, uint32_t to);
  SimListener* listener(uint32_t host, uint16_t port) const;

  LinkNumber enter(SimLink& link);
  void leave(LinkNumber number);
  SimLink* find(LinkNumber number) const;
  /// Open connections between two hosts, each as its link on `a`, in the order of their slots.
  std::vector<SimLink*> links_between(uint32_t a, uint32_t b) const;

  SimEvent* new_event(SimEvent::Kind kind, uint32_t from, uint32_t to);
  void free_event(SimEvent* event);
  /// Puts the event on its way, no earlier than `not_before_ns`; returns when it arrives. Held while the way is cut.
  uint64_t post(SimEvent* event, uint64_t not_before_ns);
  /// Tells a link that its connection has ended.
  void post_end(uint32_t from, uint32_t to, LinkNumber link, Status status, uint64_t not_before_ns);
  /// What it was sent to does not exist (any more): a request is refused, an accepted connection ended.
  void bounce(SimEvent* event);
  /// The side that wanted the connection does not any more.
  void end_accepted(const SimEvent& answer);
  uint64_t draw_end_delay() { return random() % (options.max_end_delay_ns + 1); }

  void cut(uint32_t from, uint32_t to);
  void heal(uint32_t from, uint32_t to);
  /// The receiving half of reset(): a part of what is on its way to the link, late, and then its end.
  void break_late(SimLink& link);
  void break_held(std::vector<SimEvent*>& held, LinkNumber link, bool keep);
  /// The transport is gone: its links leave the network, and their partners are told; by a death, later.
  void remove(SimTransport& transport, bool death);

  const SimNetworkOptions options;
  std::mt19937_64 random;
  uint64_t clock_ns = 0;  // without options.now_ns
  uint64_t sequence = 0;
  uint64_t digest = 0;
  DelayHook delay_hook;
  std::vector<Host> hosts;
  std::vector<Slot> slots;
  std::vector<uint32_t> free_slots;
  std::vector<std::unique_ptr<SimEvent>> events;  // all there are
  std::vector<SimEvent*> free_events;
};

class SimLink final : public Link {
 public:
  SimLink(SimTransport& transport, Handler& handler, Address peer, bool announced, uint32_t peer_host_number);
  ~SimLink() override;

  void on_event(SimEvent& event);
  void connected_to(LinkNumber partner, bool greet);
  void break_off(const char* why);
  SimTransport& transport() { return transport_; }

  LinkNumber number = 0;   // 0: left the network
  LinkNumber partner = 0;  // 0: not connected (any more)
  uint32_t peer_host = 0;
  uint64_t last_arrival_ns = 0;  // of what it has sent: nothing overtakes that

 private:
  void transmit() override;
  void on_bytes(const SimEvent& event);
  /// The receiver has taken bytes off the way.
  void room_again(size_t size, SimLink& receiver);

  SimTransport& transport_;
  size_t in_flight_ = 0;  // bytes sent that the partner has not read
  bool stopped_ = false;  // the way was full
};

class SimListener final : public Listener {
 public:
  SimListener(SimTransport& owner, Address address, std::span<const Transport::Share> shares)
      : transport(owner), address_(std::move(address)), turns_(shares) {}
  const Address& address() const override { return address_; }
  void close() override;

  const Transport::Share& next() { return turns_.next(); }

  SimTransport& transport;

 private:
  const Address address_;
  Turns turns_;
};

class SimTransport final : public TransportBase {
 public:
  SimTransport(SimNetwork::Impl& network, uint32_t host_number, const TransportOptions& options);
  ~SimTransport() override;

  Result<Listener*> listen(const Address& address, std::span<const Share> shares) override;
  Result<Connection*> connect(const Address& address, Handler& handler) override;
  size_t poll(uint64_t timeout_ns) override;
  void wake() override;
  uint64_t now_ns() const override { return net.now(); }

  /// Something is on its way to here.
  void arrives(SimQueue::Entry entry);
  /// Something happened to a link of it from outside: its thread must look.
  void poke();
  void remove(const SimListener& listener);
  const std::string& host_name() const { return net.hosts[host_at].name; }

  using TransportBase::counters_;
  SimNetwork::Impl& net;  // not touched once it is dead
  const uint32_t host_at;
  bool dead = false;
  SimQueue queue;

 private:
  friend struct SimNetwork::Impl;

  const void* place() const { return static_cast<const Transport*>(this); }
  bool due() const { return !queue.empty() && queue.first_ns() <= net.now(); }
  SimLink& adopt_sim(std::unique_ptr<SimLink> link) { return static_cast<SimLink&>(adopt(std::move(link))); }
  void on_request(const SimEvent& event);
  void wait(uint64_t timeout_ns);
  void announce(uint64_t at_ns);

  std::vector<std::unique_ptr<SimListener>> listeners_;
  // relaxed everywhere: the flag alone matters, and the simulation has one thread.
  std::atomic<bool> woken_{false};
  bool waiting_ = false;
  uint64_t announced_ns_ = kForever;  // while it waits
  uint32_t idle_turns_ = 0;           // calls of poll(0) on end that found nothing
};

}  // namespace loam::net
