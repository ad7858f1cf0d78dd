#include <iostream>

#include <nlohmann/json.hpp>

#include "deploy/cli/src/commands.h"

namespace loam::cli {

void add_version(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("version", "Print the version");
  add_json(*command, context);
  set_body(*command, context, [&context] {
    if (context.json) {
      std::cout << nlohmann::ordered_json{{"version", LOAM_VERSION}}.dump() << "\n";
    } else {
      std::cout << "loam " << LOAM_VERSION << "\n";
    }
    return kExitOk;
  });
}

}  // namespace loam::cli
