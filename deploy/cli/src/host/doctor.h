// What of this host helps or hinders Loam, and how to mend it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace loam::cli {

enum class Health : uint8_t {
  kGood,
  kPoor,  ///< Loam works, more slowly or with less room
  kBad,   ///< Loam, or a part of it, cannot work
};

/// One thing that was looked at.
struct Finding {
  std::string topic;  ///< "huge pages"
  Health health = Health::kGood;
  std::string what;  ///< what was found
  std::string mend;  ///< what to do; empty if it is good
};

struct DoctorOptions {
  std::string root;             ///< prefix of /proc and /sys, for tests
  std::vector<uint16_t> ports;  ///< which `loam dev` would use
  uint64_t memory_bytes = 0;    ///< which a node would take
  uint64_t locked_limit = 0;    ///< RLIMIT_MEMLOCK, RLIMIT_NOFILE of this process
  uint64_t files_limit = 0;
};

/// Looks at processor, memory, huge pages, locked memory, file and mapping limits, RDMA devices, ports and clock.
/// Changes nothing. May bind each port for an instant.
std::vector<Finding> examine(const DoctorOptions& options);

/// Bytes that programs can still take without swapping, by the kernel's estimate; nothing if it cannot be told.
std::optional<uint64_t> available_memory(const std::string& root = "");
/// The limits of this process.
uint64_t locked_memory_limit();
uint64_t open_files_limit();

}  // namespace loam::cli
