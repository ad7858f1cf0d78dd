// The part of a transport that all networks share: options, counters, pools, and the list of connections. Internal.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/net/link/buffer_pool.h"
#include "common/net/link/connection_base.h"
#include "common/net/transport/transport.h"

namespace loam::net {

/// kInvalidArgument if an option is out of its range.
Status check_options(const TransportOptions& options);

/// Distributes the connections that a listener accepts to its targets in turn.
class RoundRobin {
 public:
  explicit RoundRobin(std::span<const Transport::AcceptTarget> targets) : targets_(targets.begin(), targets.end()) {}
  const Transport::AcceptTarget& next() { return targets_[turn_++ % targets_.size()]; }

 private:
  const std::vector<Transport::AcceptTarget> targets_;
  size_t turn_ = 0;
};

/// The part of a transport that all networks share. Owner and threads as Transport.
class TransportBase : public Transport {
 public:
  const TransportCounters& counters() const final { return counters_; }
  const TransportOptions& options() const final { return options_; }
  const uint64_t& last_look_ns() const override { return never_looked_ns_; }

 protected:
  TransportBase(Scheme scheme, const TransportOptions& options);
  ~TransportBase() override;

  /// The clock of handshake deadlines.
  virtual uint64_t now_ns() const = 0;

  /// Checks the arguments of listen(). kInvalidArgument: the address has another scheme, or a target has no handler
  /// or is no transport of this class.
  Status check_listen(const Address& address, std::span<const AcceptTarget> targets) const;
  /// Checks the address of connect(). kInvalidArgument: it has another scheme or no port. kOverloaded: the transport
  /// has max_connections.
  Status check_connect(const Address& address) const;

  /// Takes over a new connection.
  ConnectionBase& adopt(std::unique_ptr<ConnectionBase> connection);
  size_t connection_count() const { return connections_.size(); }
  /// Whether the transport has max_connections.
  bool full() const { return connections_.size() >= options_.max_connections; }

  /// Calls service() of all connections that have requested it, calls on_closed() for ended ones, and destroys these.
  /// Returns the number of calls of on_closed().
  size_t service_connections();
  bool has_pending_service() const { return !service_pending_.empty() || !ended_.empty(); }

  /// Ends connections whose handshake deadline has passed. Returns the time until the next deadline.
  uint64_t check_handshakes();

  /// Destroys all connections without callbacks. For the destructor of a derived class, while its own members exist.
  void drop_connections();

  TransportCounters counters_;

 private:
  friend class ConnectionBase;

  Status check_scheme(const Address& address) const;

  const Scheme scheme_;
  const TransportOptions options_;
  const uint64_t never_looked_ns_ = 0;  // last_look_ns(), unless a subclass spins
  Pool<OutFrame> frames_;
  Pool<InBlock> blocks_;
  std::unordered_map<const ConnectionBase*, std::unique_ptr<ConnectionBase>> connections_;
  std::vector<ConnectionBase*> service_pending_, servicing_;
  std::vector<ConnectionBase*> ended_, ending_;
  // Connections before their handshake; check_handshakes() removes those that are open or destroyed meanwhile.
  std::vector<const ConnectionBase*> greeting_;
  uint64_t next_handshake_check_ns_ = 0;
  std::vector<Bytes> messages_;  // messages of the frame that is being delivered
};

}  // namespace loam::net
