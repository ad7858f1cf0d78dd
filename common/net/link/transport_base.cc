// The work that all transports do for their connections: checks of options and addresses, service, ends, and deadlines
// of handshakes. connection_send.cc and connection_receive.cc have the protocol of one connection.

#include "common/net/link/transport_base.h"

#include <algorithm>
#include <string>
#include <typeinfo>
#include <utility>

namespace loam::net {
namespace {

/// Shortest time between two checks of the handshake deadlines.
constexpr uint64_t kHandshakeCheckNs = 10'000'000;
/// Number of iterations of service_connections() in one poll round. It keeps poll() finite if a handler always sends
/// more.
constexpr int kMaxServiceRounds = 4;

Status out_of_range(const char* option, size_t value, size_t least, size_t most) {
  return {StatusCode::kInvalidArgument, std::string("transport option ") + option + " is " + std::to_string(value) +
                                            "; it must lie between " + std::to_string(least) + " and " +
                                            std::to_string(most)};
}

}  // namespace

Status check_options(const TransportOptions& options) {
  const auto check = [](const char* option, size_t value, size_t least, size_t most) {
    return value < least || value > most ? out_of_range(option, value, least, most) : ok_status();
  };
  LOAM_RETURN_IF_ERROR(check("max_frame_bytes", options.max_frame_bytes, kMinFrameBytes, kMaxFrameBytes));
  LOAM_RETURN_IF_ERROR(check("window_frames", options.window_frames, 2, 4096));
  LOAM_RETURN_IF_ERROR(check("max_message_bytes", options.max_message_bytes, 1, size_t{1} << 30));
  LOAM_RETURN_IF_ERROR(check("max_queued_bytes", options.max_queued_bytes, 1, size_t{1} << 32));
  LOAM_RETURN_IF_ERROR(check("max_connections", options.max_connections, 1, size_t{1} << 20));
  return ok_status();
}

TransportBase::TransportBase(Scheme scheme, const TransportOptions& options)
    : scheme_(scheme),
      options_(options),
      frames_(kMaxPooledFrames, counters_.buffer_allocations),
      blocks_(kMaxPooledBlocks, counters_.buffer_allocations) {
  // Room for as many messages as a frame can have, so that deliver_messages() never allocates.
  messages_.reserve(kMaxFrameBytes / message_footprint(1));
}

TransportBase::~TransportBase() = default;

Status TransportBase::check_scheme(const Address& address) const {
  if (address.scheme == scheme_) return ok_status();
  return {StatusCode::kInvalidArgument,
          address.to_string() + " is not an address of the " + std::string(to_string(scheme_)) + " transport"};
}

Status TransportBase::check_listen(const Address& address, std::span<const AcceptTarget> targets) const {
  // A listener casts the transport of each target to its own class when it passes on an accepted connection. So all
  // transports must have this class.
  for (const AcceptTarget& target : targets) {
    if (target.handler != nullptr && target.transport != nullptr && typeid(*target.transport) == typeid(*this))
      continue;
    return {StatusCode::kInvalidArgument,
            "a listening address is shared by " + std::string(to_string(scheme_)) + " transports with handlers only"};
  }
  return check_scheme(address);
}

Status TransportBase::check_connect(const Address& address) const {
  LOAM_RETURN_IF_ERROR(check_scheme(address));
  if (address.port == 0) {
    return {StatusCode::kInvalidArgument, address.to_string() + " has no port to connect to"};
  }
  if (full()) {
    return {StatusCode::kOverloaded,
            "the transport has its maximum of " + std::to_string(options_.max_connections) + " connections"};
  }
  return ok_status();
}

ConnectionBase& TransportBase::adopt(std::unique_ptr<ConnectionBase> connection) {
  ConnectionBase& result = *connection;
  connections_.emplace(&result, std::move(connection));
  greeting_.push_back(&result);
  return result;
}

size_t TransportBase::service_connections() {
  // Phase 1: service. A callback may request service again, also of its own connection. The swap keeps the list of this
  // iteration unchanged meanwhile.
  size_t events = 0;
  for (int turn = 0; turn < kMaxServiceRounds && !service_pending_.empty(); ++turn) {
    std::swap(service_pending_, servicing_);
    for (ConnectionBase* connection : servicing_) {
      connection->service_pending_ = false;
      connection->service();
    }
    servicing_.clear();
  }
  // Phase 2: ends. Connections are destroyed here and in the destructor only, so a callback may use its connection
  // until it returns, also after close(). A callback may end further connections. These go into ended_, and the loop
  // handles them too.
  while (!ended_.empty()) {
    std::swap(ended_, ending_);
    for (ConnectionBase* connection : ending_) {
      ++events;
      if (connection->announced_) connection->handler_.on_closed(*connection, connection->end_status_);
      if (connection->service_pending_) std::erase(service_pending_, connection);
      connections_.erase(connection);
    }
    ending_.clear();
  }
  return events;
}

uint64_t TransportBase::check_handshakes() {
  if (greeting_.empty()) return kForever;
  const uint64_t now = now_ns();
  // The list is searched once in kHandshakeCheckNs at most, so that not every round pays for it.
  if (now < next_handshake_check_ns_) return next_handshake_check_ns_ - now;
  uint64_t next = kForever;
  std::erase_if(greeting_, [&](const ConnectionBase* pointer) {
    // The connection may have been destroyed, so the pointer must not be used before the look-up by its address. If a
    // new connection has the address, the list has two entries for it, which is harmless.
    const auto found = connections_.find(pointer);
    if (found == connections_.end()) return true;
    ConnectionBase& connection = *found->second;
    if (connection.state_ == ConnectionBase::State::kOpen || connection.state_ == ConnectionBase::State::kEnded)
      return true;
    if (connection.deadline_ns_ > now) {
      next = std::min(next, connection.deadline_ns_ - now);
      return false;
    }
    counters_.connections_refused.add(1);
    connection.fail({StatusCode::kTimeout, "no handshake with " + connection.peer().to_string() + " within " +
                                               std::to_string(options_.handshake_timeout_ns / 1'000'000) +
                                               " ms; is it a Loam server, and not overloaded?"});
    return true;
  });
  if (next != kForever) next = std::max(next, kHandshakeCheckNs);
  next_handshake_check_ns_ = greeting_.empty() ? 0 : now + std::min(next, kHandshakeCheckNs);
  return next;
}

void TransportBase::drop_connections() {
  service_pending_.clear();
  ended_.clear();
  connections_.clear();
}

}  // namespace loam::net
