// Runs server processes pinned to a core and measures their CPU time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sched.h>
#include <sys/types.h>

#include "common/net/transport/address.h"

namespace loam::bench {

/// CPU time of a server since its start, nanoseconds.
struct ServerCpu {
  uint64_t serving_ns = 0;  ///< of the thread that serves the connections under load
  uint64_t process_ns = 0;  ///< of all threads
};

/// The CPU times of the threads of a process by name, nanoseconds, from /proc. Empty if the process is gone.
std::map<std::string, uint64_t> thread_times(pid_t process);

/// One server process from its start to its end; the kernel kills it when this program ends. Owner: the suite. Throws
/// std::runtime_error if the server does not start or has ended when a function needs it.
class ServerProcess {
 public:
  struct Options {
    std::string program;
    std::vector<std::string> arguments;
    std::filesystem::path log;
    size_t core = 0;             ///< the core to which the process is pinned
    std::string serving_thread;  ///< prefix of the name of the thread that serves connections
  };

  explicit ServerProcess(const Options& options);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  ServerCpu cpu() const;
  /// Waits for the log line "serving at ADDRESS", which Loam's servers write when they serve, and returns the address.
  std::string wait_serving() const;
  /// Waits until a server listens at the address.
  void wait_listening(const net::Address& address) const;

 private:
  [[noreturn]] void fail(const std::string& what) const;
  bool running() const;

  const Options options_;
  pid_t pid_ = -1;
};

/// The address in a log line of a server: "serving at tcp://127.0.0.1:7400, administration at …". Empty if the line is
/// another one.
std::optional<std::string> serving_address(std::string_view line);

/// An address of 127.0.0.1 with a port on which no server listens at the moment.
net::Address free_address();

/// memcached and a cluster of one commit manager and one storage node, on the same core. This thread is bound to
/// another core meanwhile. The logs are in a temporary folder, which the destructor removes.
class Servers {
 public:
  struct Options {
    std::string memcached = "memcached";
    std::filesystem::path programs;                ///< folder of the server programs; empty: the folder of this program
    uint64_t memory_bytes = uint64_t{1280} << 20;  ///< memory of each server
    size_t connections = 16;                       ///< upper bound on open connections
    std::string spin = "100us";                    ///< the storage node's option --spin
    /// memcached's option -R: requests of one connection that it answers before it serves another connection.
    size_t requests_per_event = 1024;
  };

  /// Explains why the comparison cannot run here: missing programs or too few cores. Empty if it can.
  static std::string missing(const Options& options);

  explicit Servers(const Options& options);
  ~Servers();
  Servers(const Servers&) = delete;
  Servers& operator=(const Servers&) = delete;

  const ServerProcess& memcached() const { return *memcached_; }
  const ServerProcess& node() const { return *node_; }
  const net::Address& memcached_address() const { return memcached_address_; }
  const std::string& manager_address() const { return manager_address_; }

 private:
  const cpu_set_t cores_before_;  // affinity of this thread before
  std::filesystem::path folder_;
  net::Address memcached_address_;
  std::string manager_address_;
  std::unique_ptr<ServerProcess> memcached_, manager_, node_;
};

}  // namespace loam::bench
