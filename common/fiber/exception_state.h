// The exception state of the C++ runtime, kept separately for each fiber.
#pragma once

#include <cstring>

#include <cxxabi.h>

namespace loam::fiber {

/// Saves the exception state of a fiber while other fibers run, and restores it in the destructor. It lies in the
/// stack frame of the fiber that switches.
///
/// The C++ runtime keeps the exceptions that are being handled, and the number of those in flight, for each thread.
/// Without this class, a fiber that waits inside a catch block would end the handling of another fiber's exception.
/// The layout is that of the Itanium C++ ABI, section 2.2.2, which g++ and clang share on this platform. Costs 2 ns.
class ExceptionState {
 public:
  ExceptionState() {
    std::memcpy(&saved_, abi::__cxa_get_globals(), sizeof saved_);
    put(Globals{});
  }
  ~ExceptionState() { put(saved_); }
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

  Globals saved_{};
};

}  // namespace loam::fiber
