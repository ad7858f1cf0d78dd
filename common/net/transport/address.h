// The address of an endpoint.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace loam::net {

/// The kind of network of an address: TCP sockets, InfiniBand verbs, or the simulated network.
enum class Scheme : uint8_t { kTcp, kRdma, kSim };

/// The scheme as an address writes it: "tcp", "rdma" or "sim".
std::string_view to_string(Scheme scheme);

/// The address of an endpoint: scheme, host and port. A value type.
///
/// Examples: "tcp://127.0.0.1:7400", "tcp://[::1]:7400", "tcp://node3.example:7400", "rdma://10.0.0.3:7400",
/// "sim://node3:1".
struct Address {
  Scheme scheme = Scheme::kTcp;
  std::string host;   ///< a name or a number; an IPv6 number has no brackets here
  uint16_t port = 0;  ///< 0 asks listen() to choose a free port

  /// Parses an address. kInvalidArgument: `text` is no address; the message has the text, the mistake and a correct
  /// example.
  static Result<Address> parse(std::string_view text);

  /// The text from which parse() makes this address.
  std::string to_string() const;

  bool operator==(const Address&) const = default;
};

}  // namespace loam::net
