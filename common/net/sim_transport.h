// Transport inside one thread, driven by a seed: the same protocol as on TCP over streams in memory.
//
// Tests give a SimNetwork its own clock; the simulator gives it its own (SimNetworkOptions::now_ns) and makes every
// process a host of one network, with as many transports as the process has threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/net/transport.h"

namespace loam::net {

struct SimNetworkOptions {
  uint64_t seed = 1;
  /// Every chunk of bytes takes a random time in this range, but never overtakes one sent before it on its connection.
  uint64_t min_delay_ns = 1'000;
  uint64_t max_delay_ns = 50'000;
  /// Bytes on their way in one direction of a connection; a sender is not writable beyond it, as a socket.
  size_t pipe_bytes = 256 * 1024;
  /// What is late at a broken connection comes no later than this beyond its delay: the rest of its bytes, and the news
  /// that it has ended; each side draws its own. See reset(), kill().
  uint64_t max_end_delay_ns = 5'000'000;
  /// The clock. Empty: the network has its own, which moves when a poll() has nothing to do now.
  std::function<uint64_t()> now_ns = {};
  /// With now_ns: a transport blocks in poll(), or is about to, and something reaches it at that time: let its thread
  /// look again then (sim_scheduler->wake(transport)). Called again if something else comes before.
  std::function<void(const std::string& host, const void* transport, uint64_t at_ns)> on_arrival = {};
};

/// A network of hosts in one operating-system thread. Everything that happens follows from the seed and from the order
/// of the calls.
///
/// Owner: the test or the simulator. Transports that are left when it ends are dead, as after kill(). One thread, or
/// virtual threads of one. Its own clock moves only in advance_to(), or in a poll() that has nothing to do now: then to
/// the next thing that happens anywhere, within its time-out. With a clock of its owner's, poll() waits by
/// SimScheduler::block() (in the simulator's kind), and the faults below may be called whenever no virtual thread runs.
class SimNetwork {
 public:
  explicit SimNetwork(const SimNetworkOptions& options = {});
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  /// The network of net::make_transport() in the simulator, or null for none. It must stay while it is installed.
  static void install(SimNetwork* network);
  static SimNetwork* installed();

  /// Another transport of a host. Addresses are "sim://<host>:<port>"; the transports of a host share its ports.
  /// kInvalidArgument if an option is out of its range.
  Result<std::unique_ptr<Transport>> make_transport(const std::string& host, const TransportOptions& options = {});

  uint64_t now_ns() const;
  /// Of its own clock.
  void advance_to(uint64_t now_ns);
  /// When the next thing happens anywhere; kForever if nothing is on its way.
  uint64_t next_event_ns() const;

  // Faults. Hosts are made by their first mention; what is set for a host stays when its process is killed.

  /// Bytes on their way between the two wait, new connections hang, until heal().
  void cut(const std::string& a, const std::string& b);
  /// The same in one direction.
  void cut_one_way(const std::string& from, const std::string& to);
  /// Ends the cuts between the two, in both directions.
  void heal(const std::string& a, const std::string& b);
  void heal_all();
  /// Added to the delay of everything that is sent from one to the other from now on. 0 ends it.
  void set_extra_delay(const std::string& from, const std::string& to, uint64_t ns);
  /// Breaks every connection between the two at once, on both sides; all that is on its way is lost. Not while a
  /// virtual thread stands inside a handler: it may be in the middle of a message.
  void drop_connections(const std::string& a, const std::string& b);
  /// Breaks every connection between the two as a real network does: each side learns of it at a time of its own, and
  /// of what was on its way a part still arrives before that, late. So one side may be connected again while the other
  /// still gets requests of the dead connection. Returns the number of connections.
  size_t reset(const std::string& a, const std::string& b);
  /// The process of that host has died: its transports never do anything again. What it had given to the network still
  /// arrives, then its connections end on the other side, some time later; what is sent to it is lost. Its transports
  /// need not be destroyed. Others may be made for the host at once: the next process of that name.
  void kill(const std::string& host);
  /// Called for every chunk sent: what it returns is added to the chunk's delay.
  using DelayHook = std::function<uint64_t(const std::string& from, const std::string& to, Bytes chunk)>;
  void set_delay_hook(DelayHook hook);

  /// A hash of all that has been put on its way so far: where, when, how long. Two runs that differ differ in it.
  uint64_t digest() const;
  /// Number of things put on their way: chunks of bytes, requests for connections, their answers and ends.
  uint64_t events() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::net
