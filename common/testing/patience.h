// How long tests wait for what must come.
#pragma once

#include <chrono>
#include <thread>

namespace loam::testing {

/// Far beyond what any machine needs: a slow one is no error. Only a test that would hang gets there, and ctest's own
/// limit (Makefile) is longer still.
inline constexpr std::chrono::minutes kPatience{5};

/// Asks again and again until `condition()` holds; false if it does not within kPatience.
template <class Condition>
[[nodiscard]] bool eventually(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));  // poll interval
  }
  return true;
}

}  // namespace loam::testing
