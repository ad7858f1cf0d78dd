// The interface between a program and the module loam-rdma.so. Internal: rdma_load.cc calls the module, rdma_entry.cc
// implements its entry.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/log.h"
#include "common/net/transport/transport.h"

namespace loam::net {

/// File name of the module.
inline constexpr char kRdmaModuleFile[] = "loam-rdma.so";
/// Name of the only symbol that the module exports.
inline constexpr char kRdmaModuleEntry[] = "loam_rdma_make_transport";

/// Identifies the binary interface. Program and module exchange C++ objects, so both must come from the same release
/// and compiler. The module refuses a caller with other values.
struct RdmaModuleAbi {
  uint64_t interface_version = 3;
  uint64_t protocol_version = kFramingVersion;
  uint64_t options_bytes = sizeof(TransportOptions);
  uint64_t counters_bytes = sizeof(TransportCounters);
  uint64_t compiler = __GNUC__ * 1000u + __GNUC_MINOR__;

  bool operator==(const RdmaModuleAbi&) const = default;
};

/// The type of the module's entry. `sink` receives the module's log lines, because the module has a log of its own.
using RdmaModuleEntry = void(const RdmaModuleAbi& caller, const TransportOptions& options,
                             Result<std::unique_ptr<Transport>>& result, LogSink sink);

/// Makes a transport over InfiniBand verbs for the calling thread, and loads the module at the first call.
/// kInvalidArgument: an option is out of range. kUnavailable: there is no module, no RDMA library, no device, or too
/// little locked memory; the message says which, and what to install or set.
Result<std::unique_ptr<Transport>> make_rdma_transport(const TransportOptions& options = {});

}  // namespace loam::net
