// Transport inside one thread, driven by a seed: the same protocol as on TCP over streams in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/net/transport.h"

namespace loam::net {

struct SimNetworkOptions {
  uint64_t seed = 1;
  /// Every chunk of bytes takes a random time in this range, but never overtakes one sent before it on its connection.
  uint64_t min_delay_ns = 1'000;
  uint64_t max_delay_ns = 50'000;
  /// Bytes on their way in one direction of a connection; a sender is not writable beyond it, as a socket.
  size_t pipe_bytes = 256 * 1024;
};

/// A network of endpoints in one thread with a clock of its own. Everything that happens follows from the seed and
/// from the order of the calls.
///
/// Owner: the test or the simulator; outlives its transports. One thread. The clock moves only in advance_to(), or in a
/// poll() that has nothing to do now: then to the next thing that happens anywhere, within its time-out.
class SimNetwork {
 public:
  explicit SimNetwork(const SimNetworkOptions& options = {});
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  /// A host of the network. Addresses are "sim://<host>:<port>". kInvalidArgument if an option is out of its range.
  Result<std::unique_ptr<Transport>> make_transport(const std::string& host, const TransportOptions& options = {});

  uint64_t now_ns() const;
  void advance_to(uint64_t now_ns);
  /// When the next thing happens anywhere; kForever if nothing is on its way.
  uint64_t next_event_ns() const;

  /// Hooks for faults. Between a pair of hosts, in both directions:
  /// bytes on their way wait, new connections hang, until heal().
  void cut(const std::string& a, const std::string& b);
  void heal(const std::string& a, const std::string& b);
  /// Breaks every connection between the two, as a peer's death or a reset does.
  void drop_connections(const std::string& a, const std::string& b);
  /// Called for every chunk sent: what it returns is added to the chunk's delay.
  using DelayHook = std::function<uint64_t(const std::string& from, const std::string& to, Bytes chunk)>;
  void set_delay_hook(DelayHook hook);

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::net
