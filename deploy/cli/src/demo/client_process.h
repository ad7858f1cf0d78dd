// A client process of the demo, as the demo sees it.
#pragma once

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "deploy/cli/src/cluster/process.h"
#include "deploy/cli/src/demo/client_report.h"

namespace loam::cli {

/// Started, watched through the lines that it prints, killed or ended. One thread.
class ClientProcess {
 public:
  struct Options {
    std::filesystem::path program;
    std::filesystem::path directory;  ///< for its output and the keys that it holds
    std::string connect;
    MoverOptions movers;
    uint64_t accounts = 0;
  };

  static Result<ClientProcess> start(const Options& options);

  unsigned number() const { return options_.movers.client_number; }
  unsigned fibers() const { return options_.movers.fibers; }
  bool runs() const { return life_of(process_) != Life::kGone; }
  void signal(int number) const { send_signal(process_, number); }
  /// SIGKILL; returns when it is gone.
  void kill() const;
  /// SIGTERM; false if it does not end within the time.
  bool end(uint64_t timeout_ns) const;

  ReportTail& report() { return report_; }
  const ReportTail& report() const { return report_; }
  /// The accounts that it was writing, after its death.
  Result<std::vector<uint64_t>> held_keys() const { return HeldKeys::read(keys_file(options_)); }
  /// The last lines that it printed.
  std::string last_words() const;

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
