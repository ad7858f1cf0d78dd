// Options of a command line that an environment variable may give instead.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace loam::command {

/// Adds a text option whose value the environment variable `variable` gives if the option is missing.
///
/// An empty text on the command line is an error, because it more likely comes from an unset variable of a script than
/// from a wish for the default. An empty environment variable counts as unset.
CLI::Option* add_with_environment(CLI::App& app, const std::string& name, std::string& value,
                                  const std::string& variable, const std::string& help);

/// Makes the options of a subcommand read their environment variables only if this subcommand is given.
///
/// CLI11 alone reads them for the options of all subcommands, after the command line. If options of several subcommands
/// share a variable of the program, the options that are not given would then overwrite the value of the given one.
/// Call the function after all options are declared. It sets the preparse_callback of each subcommand whose options
/// have environment variables, so such a subcommand cannot have another one.
void read_environment_where_given(CLI::App& app);

}  // namespace loam::command
