// Waits of tests for a condition that must become true, with a time limit.
#pragma once

#include <chrono>
#include <thread>

namespace loam::testing {

/// The time limit of a wait in a test. It is far longer than any wait on a slow machine, so only a test that would hang
/// reaches it. The time limit of ctest (Makefile) is longer.
inline constexpr std::chrono::minutes kTestTimeout{5};

/// Polls `condition()` until it returns true. False: it has not returned true within kTestTimeout.
template <class Condition>
[[nodiscard]] bool eventually(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kTestTimeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));  // poll interval
  }
  return true;
}

}  // namespace loam::testing
