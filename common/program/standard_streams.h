// Standard input, output and error of a program: always open, and with every write error reported.
#pragma once

#include <memory>

#include "common/base/status.h"

namespace loam::program {

/// Keeps the descriptors 0, 1 and 2 open, and reports every byte of std::cout and std::cerr that was not written.
///
/// If the caller of the program has closed one of the descriptors, the constructor opens it on /dev/null: standard
/// input for writing, the outputs for reading. So no other file gets the number, and each use of the descriptor fails
/// with EBADF.
///
/// After the first write error the stream is bad and drops all later output. Code with a long output checks the state
/// of std::cout and stops early. If standard output is a terminal, std::cout is written at each end of a line.
///
/// Owner: main(), which makes it before any other code opens a file, and destroys it after all code that prints. One in
/// a process. Threads: those that use std::cout and std::cerr, one at a time for each stream.
class StandardStreams {
 public:
  StandardStreams();
  ~StandardStreams();
  StandardStreams(const StandardStreams&) = delete;
  StandardStreams& operator=(const StandardStreams&) = delete;

  /// Writes the buffered output. kInternal: bytes of a stream are lost; the message names the stream and the error of
  /// the system. An error of standard output has precedence.
  Status finish();

 private:
  class Buffer;

  std::unique_ptr<Buffer> out_;
  std::unique_ptr<Buffer> error_;
};

}  // namespace loam::program
