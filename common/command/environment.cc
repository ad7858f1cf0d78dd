#include "common/command/environment.h"

#include <string>
#include <utility>
#include <vector>

namespace loam::command {

CLI::Option* add_with_environment(CLI::App& app, const std::string& name, std::string& value,
                                  const std::string& variable, const std::string& help) {
  const CLI::Validator not_empty(
      [](std::string& text) { return text.empty() ? std::string("the value is empty") : std::string(); }, "");
  return app.add_option(name, value, help)->envname(variable)->check(not_empty);
}

// Removes the names of the variables, so that CLI11 reads none. The callback, which CLI11 calls for a subcommand that
// is given, restores them.
void read_environment_where_given(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    std::vector<std::pair<CLI::Option*, std::string>> named;
    for (CLI::Option* option : command->get_options([](CLI::Option*) { return true; })) {
      const std::string name = option->get_envname();
      if (name.empty()) continue;
      option->envname("");
      named.emplace_back(option, name);
    }
    // CLI11 calls the callback before it parses the arguments of the subcommand, and reads the variables after that.
    if (!named.empty()) {
      command->preparse_callback([named](size_t) {
        for (const auto& [option, name] : named) option->envname(name);
      });
    }
    read_environment_where_given(*command);
  }
}

}  // namespace loam::command
