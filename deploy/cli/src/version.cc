#include <iostream>

#include <nlohmann/json.hpp>

#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/output/json_line.h"

namespace loam::cli {

void add_version(CLI::App& app, Context& context) {
  app.set_version_flag("--version", "loam " LOAM_VERSION, "Print the version");
  CLI::App* command = app.add_subcommand("version", "Print the version");
  add_json(*command, context);
  set_body(*command, context, [&context] {
    if (context.json) {
      std::cout << json_line({{"version", LOAM_VERSION}}) << "\n";
    } else {
      std::cout << "loam " << LOAM_VERSION << "\n";
    }
    return kExitOk;
  });
}

}  // namespace loam::cli
