// `loam`: the operator's command line.
#include <exception>
#include <iostream>

#include "common/program/standard_streams.h"
#include "deploy/cli/src/command_line.h"

int main(int argc, char** argv) {
  using namespace loam::cli;
  loam::program::StandardStreams streams;
  try {
    CommandLine line;
    const int code = line.run(argc, argv);
    return finish_output(line.context(), streams, code);
  } catch (const std::exception& error) {
    std::cerr << "loam: unexpected: " << error.what() << std::endl;
    return kExitFailed;
  }
}
