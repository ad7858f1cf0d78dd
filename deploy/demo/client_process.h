// Starts, watches and ends one client process of the demo.
#pragma once

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "deploy/cli/src/cluster/process.h"
#include "deploy/demo/client_report.h"

namespace loam::cli {

/// A client process, seen from the demo: started, watched by the lines that it prints, and killed or ended. Threads:
/// one.
class ClientProcess {
 public:
  /// How to start a client process.
  struct Options {
    std::filesystem::path program;    ///< the program `loam`
    std::filesystem::path directory;  ///< folder for its output and its file of keys in flight
    std::string connect;              ///< address of the commit manager
    TransferWorkloadOptions workload;
    uint64_t accounts = 0;  ///< number of accounts
  };

  /// Starts the process in the background. Errors are those of launch().
  static Result<ClientProcess> start(const Options& options);

  unsigned number() const { return options_.workload.client_number; }
  unsigned fibers() const { return options_.workload.fibers; }
  bool runs() const { return process_state(process_) != ProcessState::kExited; }
  void signal(int number) const { send_signal(process_, number); }
  /// Ends the process by SIGKILL and waits until it is gone.
  void kill() const;
  /// Asks the process to end by SIGTERM. False if it still runs after `timeout_ns`.
  bool end(uint64_t timeout_ns) const;

  ReportTail& report() { return report_; }
  const ReportTail& report() const { return report_; }
  /// The accounts that the process was writing when it died. Call after its death.
  Result<std::vector<uint64_t>> in_flight_keys() const { return InFlightKeys::read(keys_file(options_)); }
  /// The last lines that the process printed, for messages.
  std::string last_output() const;

 private:
  ClientProcess(Options options, const ProcessId& process)
      : options_(std::move(options)), process_(process), report_(output_file(options_)) {}
  static std::filesystem::path output_file(const Options& options);
  static std::filesystem::path keys_file(const Options& options);

  Options options_;
  ProcessId process_;
  ReportTail report_;
};

}  // namespace loam::cli
