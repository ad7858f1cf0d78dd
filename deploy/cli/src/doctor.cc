// `loam doctor`: runs the checks of host/doctor.h and prints their findings. Only errors, not warnings, make its exit
// code kExitCheckFailed.
#include "deploy/cli/src/doctor.h"

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/command/number_options.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/node_memory.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"

namespace loam::cli {
namespace {

std::string_view to_string(CheckResult result) {
  switch (result) {
    case CheckResult::kOk:
      return "ok";
    case CheckResult::kWarning:
      return "warning";
    case CheckResult::kError:
      break;
  }
  return "error";
}

void print(const Finding& finding, bool json) {
  if (json) {
    std::cout << json_line(to_json(finding)) << "\n";
    return;
  }
  constexpr size_t kResultWidth = 9;
  std::string line(to_string(finding.result));
  line.resize(kResultWidth, ' ');
  line += finding.topic + ":";
  line.resize(std::max<size_t>(line.size() + 1, kResultWidth + 20), ' ');
  std::cout << line << finding.observation << "\n";
  if (!finding.fix.empty()) std::cout << std::string(kResultWidth, ' ') << "→ " << finding.fix << "\n";
}

int run_doctor(const Context& context, const DoctorOptions& checks) {
  size_t warnings = 0;
  size_t errors = 0;
  for (const Finding& finding : run_checks(checks)) {
    print(finding, context.json);
    warnings += finding.result == CheckResult::kWarning;
    errors += finding.result == CheckResult::kError;
  }
  if (!context.json) {
    std::cout << (errors > 0     ? "\nLoam does not work correctly here.\n"
                  : warnings > 0 ? "\nLoam works here; the warnings cost speed or memory.\n"
                                 : "\nLoam works here.\n");
  }
  return errors > 0 ? kExitCheckFailed : kExitOk;
}

}  // namespace

DoctorOptions default_doctor_options() {
  DoctorOptions options;
  options.memory_bytes = uint64_t{1} << 30;
  options.ports = {7400, 7401, 7410, 7411};
  options.locked_limit = locked_memory_limit();
  options.files_limit = open_files_limit();
  return options;
}

nlohmann::ordered_json to_json(const Finding& finding) {
  return {{"topic", finding.topic},
          {"result", to_string(finding.result)},
          {"observation", finding.observation},
          {"fix", finding.fix}};
}

void add_doctor(CLI::App& app, Context& context) {
  auto options = std::make_shared<DoctorOptions>(default_doctor_options());
  CLI::App* command = app.add_subcommand("doctor", "Check this host for problems of Loam, and say how to fix them");
  add_json(*command, context);
  command::add_size(*command, "--memory", options->memory_bytes, kNodeMemoryRange,
                    "Memory that a storage node would use");
  command::add_unsigned_list(*command, "--port", options->ports, {1, UINT16_MAX}, "Ports that Loam would use")
      ->type_name("PORT");
  command
      ->add_option("--address", options->address,
                   "Address or name of this host at which these ports are tried; the default is all addresses")
      ->type_name("HOST");
  set_body(*command, context, [&context, options] { return run_doctor(context, *options); });
}

}  // namespace loam::cli
