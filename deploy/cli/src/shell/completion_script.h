// Completion for shells, generated from the tree of subcommands itself, so that it cannot fall behind.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace loam::cli {

/// A bash script that completes `app`'s subcommands, options, and the values of options that name theirs; elsewhere
/// file names. `source <(loam completion bash)`.
std::string bash_completion(const CLI::App& app);

}  // namespace loam::cli
