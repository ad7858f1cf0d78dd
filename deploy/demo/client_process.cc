// Starts `loam demo-client` (deploy/cli/src/demo_client.cc) in the background. Its output is the file of reports.
#include "deploy/demo/client_process.h"

#include <fmt/format.h>

namespace loam::cli {
namespace {

constexpr uint64_t kKillTakesNs = 10'000'000'000;

}  // namespace

Result<ClientProcess> ClientProcess::start(const Options& options) {
  const std::vector<std::string> arguments = {"demo-client",
                                              "--connect=" + options.connect,
                                              fmt::format("--number={}", options.workload.client_number),
                                              fmt::format("--fibers={}", options.workload.fibers),
                                              fmt::format("--seed={}", options.workload.seed),
                                              fmt::format("--accounts={}", options.accounts),
                                              "--held-keys=" + keys_file(options).string()};
  LOAM_ASSIGN_OR_RETURN(const ProcessId process, launch({options.program, arguments, output_file(options)}));
  return ClientProcess(options, process);
}

void ClientProcess::kill() const {
  send_signal(process_, SIGKILL);
  wait_exited(process_, kKillTakesNs);
}

bool ClientProcess::end(uint64_t timeout_ns) const {
  send_signal(process_, SIGTERM);
  // A paused process handles SIGTERM only after it continues.
  send_signal(process_, SIGCONT);
  return wait_exited(process_, timeout_ns);
}

std::string ClientProcess::last_output() const {
  constexpr size_t kLines = 3;
  std::string text;
  for (const std::string& line : last_lines(output_file(options_), kLines)) text += (text.empty() ? "" : " | ") + line;
  return text;
}

std::filesystem::path ClientProcess::output_file(const Options& options) {
  return options.directory / fmt::format("client-{}.log", options.workload.client_number);
}

std::filesystem::path ClientProcess::keys_file(const Options& options) {
  return options.directory / fmt::format("client-{}.keys", options.workload.client_number);
}

}  // namespace loam::cli
