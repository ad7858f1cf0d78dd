// Completion for shells, generated from the parser's subcommands, so that it is always complete.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace loam::cli {

/// A bash script for `source <(loam completion bash)`. It completes the subcommands and options of `app` and the values
/// of options that list them; elsewhere it completes file names.
std::string bash_completion(const CLI::App& app);

}  // namespace loam::cli
