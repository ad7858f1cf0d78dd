// Servers as processes pinned to a core, and the processor time that they take.
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

#include "common/net/address.h"

namespace loam::bench {

/// Processor time of a server since its start, nanoseconds.
struct ServerCpu {
  uint64_t serving_ns = 0;  ///< of the thread that serves the connections under load
  uint64_t process_ns = 0;  ///< of all threads
};

/// Of a process's threads: name and nanoseconds on a processor, from /proc. Empty if the process is gone.
std::map<std::string, uint64_t> thread_times(pid_t process);

/// Role: one server process, from its start to its end; it dies with this program. Owner: the suite. Throws
/// std::runtime_error if it does not start, or has ended when it is asked something.
class ServerProcess {
 public:
  struct Options {
    std::string program;
    std::vector<std::string> arguments;
    std::filesystem::path log;
    size_t core = 0;             ///< the one that it may use
    std::string serving_thread;  ///< its name begins so
  };

  explicit ServerProcess(const Options& options);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  ServerCpu cpu() const;
  /// Waits for a line of the log with "serving at ADDRESS", what Loam's servers say once they serve.
  std::string wait_serving() const;
  /// Waits until somebody listens there.
  void wait_listening(const net::Address& address) const;

 private:
  [[noreturn]] void fail(const std::string& what) const;
  bool running() const;

  const Options options_;
  pid_t pid_ = -1;
};

/// The address that a line of a server's log names: "serving at tcp://127.0.0.1:7400, administration at …".
std::optional<std::string> serving_address(std::string_view line);

/// A port of 127.0.0.1 that nobody listens on at the moment.
net::Address free_address();

/// memcached and a cluster of one commit manager and one storage node, side by side on one core; this thread is bound
/// to another one. Their logs and nothing else lie in a folder of their own, which goes with them.
class Servers {
 public:
  struct Options {
    std::string memcached = "memcached";
    std::filesystem::path programs;  ///< the folder of loam-storage-node and loam-commit-manager; empty: this program's
    uint64_t memory_bytes = uint64_t{1280} << 20;  ///< of each server
    size_t connections = 16;                       ///< the most at one time
    std::string spin = "100us";                    ///< of the storage node
    /// memcached's -R: requests of a connection that it answers before it turns to another one.
    size_t requests_per_event = 1024;
  };

  /// Why the comparison cannot be made here: programs that are missing, too few cores. Empty: it can.
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
  const cpu_set_t cores_before_;  // of this thread
  std::filesystem::path folder_;
  net::Address memcached_address_;
  std::string manager_address_;
  std::unique_ptr<ServerProcess> memcached_, manager_, node_;
};

}  // namespace loam::bench
