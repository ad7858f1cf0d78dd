// The implementation of the simulated network: events in flight, hosts, connections, transports. Internal.
//
//   transmit() of a connection ──SimEvent──▶ queue of the receiving transport ──poll()──▶ on_event() of the connection
//
// A connection finds its partner by number (ConnectionNumber), never by pointer, because the other side may be gone,
// or its process dead, when an event arrives. Events come from a pool and keep the memory of their bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/net/link/transport_base.h"
#include "common/net/simulated/sim_transport.h"

namespace loam::net {

class SimTransport;
class SimConnection;
class SimListener;

/// Names one side of a connection, and is never reused: its slot in the network's table, and the number of earlier
/// uses of the slot. 0 is none.
using ConnectionNumber = uint64_t;

/// An event in flight to a connection, or (kRequest) to a port of a host. Owner: the pool of the network, the queue
/// of a transport, or a cut route.
struct SimEvent {
  enum class Kind : uint8_t {
    kBytes,     ///< a chunk of bytes
    kWritable,  ///< the partner has read so much that there is room for more bytes
    kEnd,       ///< the connection has ended with `status`
    kRequest,   ///< a connection request; `connection` is the sender's side of the new connection
    kAnswer,    ///< the reply to a request; `sender` is the accepted connection, 0: refused
  };
  Kind kind = Kind::kBytes;
  uint16_t port = 0;
  uint32_t from = 0, to = 0;  // numbers of hosts
  ConnectionNumber connection = 0;
  ConnectionNumber sender = 0;
  Buffer bytes;
  Status status;
};

/// The events that will reach a transport, the earliest first. `sequence` orders events of the same time.
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
  SimEvent* pop_first();
  /// Removes the events for which `chosen` returns true, and returns them in the order of their arrival.
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
  /// The route from one host to another.
  struct Route {
    uint64_t extra_delay_ns = 0;
    bool cut = false;
    std::vector<SimEvent*> held;  // events that wait for the end of the cut, in order
  };
  struct Host {
    std::string name;
    std::vector<SimTransport*> transports;  // in the order of their creation
    std::vector<SimListener*> listeners;
    uint16_t next_port = 0;
    std::vector<Route> routes;  // by number of the destination; may be shorter than the list of hosts
  };
  /// A slot of the table of connections.
  struct Slot {
    SimConnection* connection = nullptr;
    uint32_t uses = 0;
  };

  explicit Impl(const SimNetworkOptions& network_options);

  uint64_t now() const { return options.now_ns ? options.now_ns() : clock_ns; }
  uint64_t next_event_ns() const;

  uint32_t host_number(const std::string& name);
  Route& route(uint32_t from, uint32_t to);
  SimListener* listener(uint32_t host, uint16_t port) const;

  ConnectionNumber register_connection(SimConnection& connection);
  void unregister_connection(ConnectionNumber number);
  SimConnection* find(ConnectionNumber number) const;
  /// The open connections between two hosts, each by its side at `a`, in the order of their slots.
  std::vector<SimConnection*> connections_between(uint32_t a, uint32_t b) const;

  SimEvent* new_event(SimEvent::Kind kind, uint32_t from, uint32_t to);
  void free_event(SimEvent* event);
  /// Sends an event so that it arrives no earlier than `not_before_ns`. Returns the time of its arrival. A cut route
  /// holds the event.
  uint64_t post(SimEvent* event, uint64_t not_before_ns);
  /// Sends a connection the notice that it has ended.
  void post_end(uint32_t from, uint32_t to, ConnectionNumber connection, Status status, uint64_t not_before_ns);
  /// Handles an event whose receiver does not exist: refuses a request, and ends an accepted connection.
  void return_undeliverable(SimEvent* event);
  /// Ends an accepted connection whose initiator no longer exists.
  void end_accepted(const SimEvent& answer);
  uint64_t draw_end_delay() { return random() % (options.max_end_delay_ns + 1); }

  void cut(uint32_t from, uint32_t to);
  void heal(uint32_t from, uint32_t to);
  /// Does reset() for the receiver of one direction: a part of the bytes in flight arrives late, and then the end.
  void break_late(SimConnection& connection);
  void break_held(std::vector<SimEvent*>& held, ConnectionNumber connection, bool keep);
  /// Removes a transport and its connections, and notifies their partners; after a death, with a delay.
  void remove(SimTransport& transport, bool death);

  const SimNetworkOptions options;
  std::mt19937_64 random;
  uint64_t clock_ns = 0;  // used if options.now_ns is empty
  uint64_t sequence = 0;
  uint64_t digest = 0;
  DelayHook delay_hook;
  std::vector<Host> hosts;
  std::vector<Slot> slots;
  std::vector<uint32_t> free_slots;
  std::vector<std::unique_ptr<SimEvent>> events;  // owns all events
  std::vector<SimEvent*> free_events;
};

/// One side of a simulated connection.
class SimConnection final : public ConnectionBase {
 public:
  SimConnection(SimTransport& transport, Handler& handler, Address peer, bool announced, uint32_t peer_host_number);
  ~SimConnection() override;

  void on_event(SimEvent& event);
  void connected_to(ConnectionNumber partner, bool greet);
  void break_off(const char* why);
  SimTransport& transport() { return transport_; }

  ConnectionNumber number = 0;   // 0: the connection has left the network
  ConnectionNumber partner = 0;  // 0: not connected yet, or no longer
  uint32_t peer_host = 0;
  uint64_t last_arrival_ns = 0;  // arrival of its last event; a later event does not overtake it

 private:
  void transmit() override;
  void on_bytes(const SimEvent& event);
  /// Called when the receiver has read bytes.
  void on_bytes_consumed(size_t size, SimConnection& receiver);

  SimTransport& transport_;
  size_t in_flight_ = 0;  // sent bytes that the partner has not read
  bool stopped_ = false;  // SimNetworkOptions::pipe_bytes were in flight
};

/// A listening port of a simulated host.
class SimListener final : public Listener {
 public:
  SimListener(SimTransport& owner, Address address, std::span<const Transport::AcceptTarget> targets)
      : transport(owner), address_(std::move(address)), round_robin_(targets) {}
  const Address& address() const override { return address_; }
  void close() override;

  const Transport::AcceptTarget& next() { return round_robin_.next(); }

  SimTransport& transport;

 private:
  const Address address_;
  RoundRobin round_robin_;
};

/// A transport of a simulated host.
class SimTransport final : public TransportBase {
 public:
  SimTransport(SimNetwork::Impl& network, uint32_t host_number, const TransportOptions& options);
  ~SimTransport() override;

  Result<Listener*> listen(const Address& address, std::span<const AcceptTarget> targets) override;
  Result<Connection*> connect(const Address& address, Handler& handler) override;
  size_t poll(uint64_t timeout_ns) override;
  void wake() override;
  uint64_t now_ns() const override { return net.now(); }

  /// Adds an event that will reach this transport.
  void enqueue(SimQueue::Entry entry);
  /// Makes the transport's thread poll, because code outside of it has changed a connection.
  void request_poll();
  void remove(const SimListener& listener);
  const std::string& host_name() const { return net.hosts[host_at].name; }

  using TransportBase::counters_;
  SimNetwork::Impl& net;  // not used once `dead` is true
  const uint32_t host_at;
  bool dead = false;
  SimQueue queue;

 private:
  friend struct SimNetwork::Impl;

  const void* place() const { return static_cast<const Transport*>(this); }
  bool due() const { return !queue.empty() && queue.first_ns() <= net.now(); }
  SimConnection& adopt_sim(std::unique_ptr<SimConnection> connection) {
    return static_cast<SimConnection&>(adopt(std::move(connection)));
  }
  void on_request(const SimEvent& event);
  void wait(uint64_t timeout_ns);
  void notify_arrival(uint64_t at_ns);

  std::vector<std::unique_ptr<SimListener>> listeners_;
  // Relaxed everywhere: no other data depends on the flag, and the simulation has one thread.
  std::atomic<bool> woken_{false};
  bool waiting_ = false;
  uint64_t announced_ns_ = kForever;  // while it waits: the earliest time passed to on_arrival
  uint32_t idle_turns_ = 0;           // consecutive calls of poll(0) without an event
};

}  // namespace loam::net
