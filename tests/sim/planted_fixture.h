// Errors that tests of the oracle plant in short histories.
#pragma once

#include <ostream>
#include <span>
#include <string_view>

#include "tests/sim/story.h"

namespace loam::sim {

/// An error in an otherwise correct history, and the invariant that the oracle must name.
struct Planted {
  std::string_view invariant;
  void (*tell)(Story&);
};

/// For the test's name.
inline void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.invariant; }

/// Errors in transactions and their scans.
std::span<const Planted> planted_in_transactions();

}  // namespace loam::sim
