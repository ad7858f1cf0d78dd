#include <iostream>
#include <memory>

#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/shell/completion_script.h"

namespace loam::cli {

void add_completion(CLI::App& app, Context& context) {
  auto shell = std::make_shared<std::string>("bash");
  CLI::App* command = app.add_subcommand("completion", "Print a completion script: source <(loam completion bash)");
  command->add_option("shell", *shell, "Name of the shell")->check(CLI::IsMember({"bash"}))->capture_default_str();
  set_body(*command, context, [&app, shell] {
    std::cout << bash_completion(app);
    return kExitOk;
  });
}

}  // namespace loam::cli
