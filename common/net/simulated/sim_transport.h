// A simulated network inside one thread, driven by a seed. Its transports use the protocol of TCP connections over
// streams in memory.
//
// In tests a SimNetwork has a clock of its own. The simulator provides the clock (SimNetworkOptions::now_ns) and
// makes every process a host of one network, with one transport for each thread of the process that uses one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/net/transport/transport.h"

namespace loam::net {

/// Options of a SimNetwork.
struct SimNetworkOptions {
  uint64_t seed = 1;  ///< seed of all random decisions
  /// Range of the random delay of each chunk of bytes. A chunk never overtakes an earlier one of its connection.
  uint64_t min_delay_ns = 1'000;
  uint64_t max_delay_ns = 50'000;
  /// Largest number of bytes in flight in one direction of a connection. Beyond it the sender is not writable, as
  /// with the buffer of a socket.
  size_t pipe_bytes = 256 * 1024;
  /// Largest additional delay at a broken connection, for its remaining bytes and for the notice that it has ended.
  /// Each side draws its own delay. See reset() and kill().
  uint64_t max_end_delay_ns = 5'000'000;
  /// The clock. Empty: the network has a clock of its own, which advances when a poll() has nothing to do.
  std::function<uint64_t()> now_ns = {};
  /// Required with now_ns. Called when an event will reach a transport at `at_ns` whose thread blocks in poll(), or
  /// is about to. The receiver wakes the thread at that time, by sim_scheduler->wake(transport). Called again for an
  /// earlier event.
  std::function<void(const std::string& host, const void* transport, uint64_t at_ns)> on_arrival = {};
};

/// A network of hosts in one thread of the operating system. The seed and the order of the calls determine all its
/// events.
///
/// Owner: the test or the simulator. Transports that still exist at its end are dead, as after kill(). Threads: one,
/// or the virtual threads of one.
///
/// The network's own clock advances only in advance_to(), and in a poll() that has nothing to do: there it advances
/// to the next event of any host, within the time-out. With a clock of the owner, poll() waits by
/// SimScheduler::block() in simulated builds, and the owner may call the faults below whenever no virtual thread
/// runs.
class SimNetwork {
 public:
  explicit SimNetwork(const SimNetworkOptions& options = {});
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  /// Sets the network that net::make_transport() uses in simulated builds; null: none. The caller keeps it alive
  /// while it is installed.
  static void install(SimNetwork* network);
  /// The network of install().
  static SimNetwork* installed();

  /// Makes a transport of a host. Addresses are "sim://<host>:<port>"; all transports of a host share its ports.
  /// kInvalidArgument: an option is out of range.
  Result<std::unique_ptr<Transport>> make_transport(const std::string& host, const TransportOptions& options = {});

  /// The present time of the clock.
  uint64_t now_ns() const;
  /// Sets the network's own clock.
  void advance_to(uint64_t now_ns);
  /// The time of the next event of any host; kForever if nothing is in flight.
  uint64_t next_event_ns() const;

  // Faults. The first mention of a host makes it. Settings of a host stay when its process is killed.

  /// Cuts the routes between two hosts in both directions. Bytes in flight wait, and new connections hang, until
  /// heal().
  void cut(const std::string& a, const std::string& b);
  /// Cuts the route in one direction.
  void cut_one_way(const std::string& from, const std::string& to);
  /// Ends the cuts between two hosts, in both directions.
  void heal(const std::string& a, const std::string& b);
  /// Ends all cuts.
  void heal_all();
  /// Adds `ns` to the delay of everything that is sent from one host to the other from now on. 0 ends it.
  void set_extra_delay(const std::string& from, const std::string& to, uint64_t ns);
  /// Breaks all connections between two hosts at once, on both sides; everything in flight is lost. Not allowed while
  /// a virtual thread is inside a handler, which may be using a message.
  void drop_connections(const std::string& a, const std::string& b);
  /// Breaks all connections between two hosts as a real network does. Each side learns of it at a time of its own,
  /// and a part of the bytes in flight still arrives late before that. So one side may have a new connection while
  /// the other side still receives requests of the dead one. Returns the number of connections.
  size_t reset(const std::string& a, const std::string& b);
  /// Kills the process of a host: its transports never act again, and need not be destroyed. Bytes that it has sent
  /// still arrive; some time later its connections end on the other side. Bytes sent to it are lost. New transports
  /// for the host, which belong to its next process, may be made at once.
  void kill(const std::string& host);
  /// Returns an additional delay for a chunk. Called for every chunk sent.
  using DelayHook = std::function<uint64_t(const std::string& from, const std::string& to, Bytes chunk)>;
  void set_delay_hook(DelayHook hook);

  /// A hash of all events so far, with their places, times and sizes. Runs with different events have different hashes.
  uint64_t digest() const;
  /// Number of events so far: chunks of bytes, connection requests, their replies, and ends.
  uint64_t events() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::net
