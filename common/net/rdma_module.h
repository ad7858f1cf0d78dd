// What a program and the module loam-rdma.so agree on. Internal: rdma_load.cc calls, rdma_entry.cc answers.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/log.h"
#include "common/net/transport.h"

namespace loam::net {

/// File name of the module, and of the one symbol that it exports.
inline constexpr char kRdmaModuleFile[] = "loam-rdma.so";
inline constexpr char kRdmaModuleEntry[] = "loam_rdma_make_transport";

/// Both sides exchange C++ objects, so both must come from one build. Anything that differs is refused.
struct RdmaModuleStamp {
  uint64_t interface_version = 2;
  uint64_t protocol_version = kProtocolVersion;
  uint64_t options_bytes = sizeof(TransportOptions);
  uint64_t counters_bytes = sizeof(TransportCounters);
  uint64_t compiler = __GNUC__ * 1000u + __GNUC_MINOR__;

  bool operator==(const RdmaModuleStamp&) const = default;
};

/// `sink` gets the lines for operators: a module has its own copy of what logs.
using RdmaModuleEntry = void(const RdmaModuleStamp& caller, const TransportOptions& options,
                             Result<std::unique_ptr<Transport>>& result, LogSink sink);

/// Loads the module if that was not done yet, and makes a transport for the calling thread. kUnavailable if there is no
/// module, no RDMA library, no device, or too little locked memory: the message says which, and what to install or set.
Result<std::unique_ptr<Transport>> make_rdma_transport(const TransportOptions& options = {});

}  // namespace loam::net
