#include "deploy/cli/src/host/doctor.h"

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/output/figures.h"
#include "deploy/cli/src/output/json_line.h"

namespace loam::cli {
namespace {

struct Options {
  std::string memory = "1GiB";
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

int run(const Context& context, const Options& options) {
  DoctorOptions what;
  auto memory = parse_bytes(options.memory);
  if (!memory.ok()) return fail(context, kExitUsage, "--memory: " + std::string(memory.status().message()));
  what.memory_bytes = *memory;
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
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("doctor", "Look at this host: what hinders Loam, and how to mend it");
  add_json(*command, context);
  command->add_option("--memory", options->memory, "Memory that a storage node would take")
      ->type_name("SIZE")
      ->capture_default_str();
  command->add_option("--port", options->ports, "Ports that would be used")->type_name("PORT")->capture_default_str();
  set_body(*command, context, [&context, options] { return run(context, *options); });
}

}  // namespace loam::cli
