// The arguments of main() as CLI11 takes them.
#pragma once

#include <string>
#include <vector>

namespace loam::program {

/// The arguments behind the program's name, the last one first, for CLI::App::parse(). "--name=" becomes "--name" and
/// an empty text: CLI11 would take the next argument for the value.
std::vector<std::string> parser_arguments(int argc, const char* const* argv);

}  // namespace loam::program
