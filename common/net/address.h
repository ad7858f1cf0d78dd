// Where an endpoint is reached.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace loam::net {

enum class Scheme : uint8_t { kTcp, kRdma, kSim };

std::string_view to_string(Scheme scheme);

/// A parsed endpoint address: "tcp://127.0.0.1:7400", "tcp://[::1]:7400", "tcp://node3.example:7400",
/// "rdma://10.0.0.3:7400", "sim://node3:1". Port 0 in listen() means: choose a free one. Value type.
struct Address {
  Scheme scheme = Scheme::kTcp;
  std::string host;  ///< name or number; without the brackets of an IPv6 number
  uint16_t port = 0;

  /// kInvalidArgument if `text` is no address; the message shows the text, the mistake and a correct example.
  static Result<Address> parse(std::string_view text);

  /// The text that parse() reads.
  std::string to_string() const;

  bool operator==(const Address&) const = default;
};

}  // namespace loam::net
