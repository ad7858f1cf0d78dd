// Peers that are driven by a program of their own: one JSON object a line, commands in, answers out.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>
#include <sys/types.h>

#include "common/base/status.h"
#include "common/net/tcp_socket.h"

namespace loam::bench {

/// Role: starts such a program, asks it, ends it; it is told to end (SIGTERM) when this one ends in whatever way.
/// Owner: the class that speaks for the peer. One thread. Throws std::runtime_error if the program does not do as it is
/// asked.
class PeerProgram {
 public:
  struct Options {
    std::string peer;                    ///< its name in messages
    std::string setup;                   ///< what installs it
    std::vector<std::string> arguments;  ///< the interpreter and the program first, both paths
  };

  /// With its first line. kUnavailable if it is not there, or that line says `error`: the message says what to run.
  static Result<std::unique_ptr<PeerProgram>> start(Options options);
  ~PeerProgram();
  PeerProgram(const PeerProgram&) = delete;
  PeerProgram& operator=(const PeerProgram&) = delete;

  const nlohmann::json& first() const { return *first_; }
  /// Its answer; an `error` in it is thrown.
  nlohmann::json command(const nlohmann::json& command);

 private:
  PeerProgram(Options options, pid_t pid, net::Fd pipe);

  nlohmann::json read_line();

  const Options options_;
  const pid_t pid_;
  net::Fd pipe_;  // both ways
  std::string read_;
  std::unique_ptr<nlohmann::json> first_;
};

}  // namespace loam::bench
