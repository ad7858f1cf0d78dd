#include "deploy/cli/src/host/doctor.h"

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/command/number_options.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/node_memory.h"
#include "deploy/cli/src/output/figures.h"
#include "deploy/cli/src/output/json_line.h"

namespace loam::cli {
namespace {

struct DoctorCommandOptions {
  uint64_t memory_bytes = uint64_t{1} << 30;
  std::vector<uint16_t> ports = {7400, 7401, 7410, 7411};
};

std::string_view word(Health health) {
  switch (health) {
    case Health::kGood:
      return "good";
    case Health::kPoor:
      return "poor";
    case Health::kBad:
      break;
  }
  return "bad";
}

void print(const Finding& finding, bool json) {
  if (json) {
    const nlohmann::ordered_json object = {
        {"topic", finding.topic}, {"health", word(finding.health)}, {"what", finding.what}, {"mend", finding.mend}};
    std::cout << json_line(object) << "\n";
    return;
  }
  std::string line = std::string(word(finding.health)) + "  " + finding.topic + ":";
  line.resize(std::max<size_t>(line.size() + 1, 26), ' ');
  std::cout << line << finding.what << "\n";
  if (!finding.mend.empty()) std::cout << std::string(6, ' ') << "→ " << finding.mend << "\n";
}

int run_doctor(const Context& context, const DoctorCommandOptions& options) {
  DoctorOptions what;
  what.memory_bytes = options.memory_bytes;
  what.ports = options.ports;
  what.locked_limit = locked_memory_limit();
  what.files_limit = open_files_limit();
  size_t poor = 0;
  size_t bad = 0;
  for (const Finding& finding : examine(what)) {
    print(finding, context.json);
    poor += finding.health == Health::kPoor;
    bad += finding.health == Health::kBad;
  }
  if (!context.json) {
    std::cout << (bad > 0    ? "\nLoam cannot work here as it should.\n"
                  : poor > 0 ? "\nLoam works here; what is marked poor costs speed or room.\n"
                             : "\nLoam works here.\n");
  }
  return bad > 0 ? kExitCheckFailed : kExitOk;
}

}  // namespace

void add_doctor(CLI::App& app, Context& context) {
  auto options = std::make_shared<DoctorCommandOptions>();
  CLI::App* command = app.add_subcommand("doctor", "Look at this host: what hinders Loam, and how to mend it");
  add_json(*command, context);
  command::add_size(*command, "--memory", options->memory_bytes, kNodeMemoryRange,
                    "Memory that a storage node would take");
  command::add_wholes(*command, "--port", options->ports, {1, UINT16_MAX}, "Ports that would be used")
      ->type_name("PORT");
  set_body(*command, context, [&context, options] { return run_doctor(context, *options); });
}

}  // namespace loam::cli
