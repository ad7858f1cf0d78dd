// Standard input, output and error of a program: there from its first moment, and checked to their last byte.
#pragma once

#include <memory>

#include "common/base/status.h"

namespace loam::program {

/// Role: makes sure that descriptors 0, 1 and 2 are open, and that a program learns of every byte of std::cout and
/// std::cerr that was not written. A descriptor that the caller had closed is opened on /dev/null the wrong way round,
/// so that no other file gets its number, and using it fails. Owner: main(), made before anything else opens a file,
/// and gone after everything that prints; one in a process. Threads: those of std::cout and std::cerr.
///
/// After the first byte that cannot be written the stream is bad, and all that follows is dropped: a long output looks
/// at the state of std::cout and ends early. On a terminal std::cout is written at each end of a line.
class StandardStreams {
 public:
  StandardStreams();
  ~StandardStreams();
  StandardStreams(const StandardStreams&) = delete;
  StandardStreams& operator=(const StandardStreams&) = delete;

  /// Writes the buffered output; kInternal tells why bytes were lost, of standard output first. Output since the last
  /// call with an error may be lost, too.
  Status finish();

 private:
  class Buffer;

  std::unique_ptr<Buffer> out_;
  std::unique_ptr<Buffer> error_;
};

}  // namespace loam::program
