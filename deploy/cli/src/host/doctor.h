// Checks of this host for `loam doctor`: what prevents Loam from running or slows it down, and how to fix it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace loam::cli {

/// The result of one check.
enum class CheckResult : uint8_t {
  kOk,
  kWarning,  ///< Loam works, but slower or with less memory
  kError,    ///< Loam, or a part of it, cannot work
};

/// One checked property of the host.
struct Finding {
  std::string topic;  ///< "huge pages"
  CheckResult result = CheckResult::kOk;
  std::string observation;  ///< what the check saw, for people
  std::string fix;          ///< what the operator should do; empty if the result is kOk
};

/// What run_checks() needs to know.
struct DoctorOptions {
  std::string root;             ///< prefix of the paths /proc and /sys, for tests
  std::string address;          ///< host or address at which the servers would listen; empty: all of this host
  std::vector<uint16_t> ports;  ///< the ports that the servers would use
  uint64_t memory_bytes = 0;    ///< the memory that a storage node would allocate
  uint64_t locked_limit = 0;    ///< RLIMIT_MEMLOCK of this process, bytes
  uint64_t files_limit = 0;     ///< RLIMIT_NOFILE of this process
};

/// Checks processor, memory, huge pages, locked memory, limits on files and mappings, RDMA devices, ports and clock.
/// Changes nothing; may bind each port for an instant.
std::vector<Finding> run_checks(const DoctorOptions& options);

/// The kernel's estimate of the bytes that programs can allocate without swapping; empty if the kernel does not tell.
std::optional<uint64_t> available_memory(const std::string& root = "");
/// The soft limit of this process on locked memory, in bytes.
uint64_t locked_memory_limit();
/// The soft limit of this process on open files.
uint64_t open_files_limit();

}  // namespace loam::cli
