// Runs peers that have a driver program of their own: commands and replies are one JSON object a line.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>
#include <sys/types.h>

#include "common/base/status.h"
#include "common/net/tcp/tcp_socket.h"

namespace loam::bench {

/// A driver program: starts it, sends commands, and ends it. The kernel sends it SIGTERM when this program ends for any
/// reason. Owner: the class of the peer. Threads: one. Throws std::runtime_error if the program does not answer as
/// expected.
class PeerProgram {
 public:
  struct Options {
    std::string peer;                    ///< name of the peer in messages
    std::string setup;                   ///< command that installs the peer
    std::vector<std::string> arguments;  ///< paths of interpreter and program, then arguments
  };

  /// Starts the program and reads its first line. kUnavailable: the program is missing, or the line has an `error`; the
  /// message says how to install the peer.
  static Result<std::unique_ptr<PeerProgram>> start(Options options);
  ~PeerProgram();
  PeerProgram(const PeerProgram&) = delete;
  PeerProgram& operator=(const PeerProgram&) = delete;

  /// The object of the first line.
  const nlohmann::json& first() const { return *first_; }
  /// Sends a command and returns the reply. Throws if the reply has an `error`.
  nlohmann::json command(const nlohmann::json& command);

 private:
  PeerProgram(Options options, pid_t pid, net::Fd pipe);

  nlohmann::json read_line();

  const Options options_;
  const pid_t pid_;
  net::Fd pipe_;  // for both directions
  std::string read_;
  std::unique_ptr<nlohmann::json> first_;
};

}  // namespace loam::bench
