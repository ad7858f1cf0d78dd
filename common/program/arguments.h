// The arguments of main(), in the form in which CLI11 parses them.
#pragma once

#include <string>
#include <vector>

namespace loam::program {

/// The command-line arguments for CLI::App::parse(): without the program's name, and the last one first.
///
/// The function splits "--name=" into "--name" and an empty text, because CLI11 would use the next argument as the
/// value. It leaves the arguments after "--" unchanged.
std::vector<std::string> parser_arguments(int argc, const char* const* argv);

}  // namespace loam::program
