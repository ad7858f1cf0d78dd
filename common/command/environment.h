// Environment variables in the place of options.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace loam::command {

/// Adds an option of a text that the environment variable `variable` may give instead. An empty text on the command
/// line is refused: it is more likely a script's variable that is not set than a wish for the default. An empty
/// environment variable counts as none.
CLI::Option* add_with_environment(CLI::App& app, const std::string& name, std::string& value,
                                  const std::string& variable, const std::string& help);

/// Makes the options of a subcommand read their environment variables only if that subcommand was given. By itself
/// CLI11 reads them for the options of all subcommands, after the command line: where several options share one
/// variable of the program, those that were not given overwrite what the given one has set. Call it when all options
/// are declared; a subcommand whose options have environment variables can have no other preparse_callback.
void read_environment_where_given(CLI::App& app);

}  // namespace loam::command
