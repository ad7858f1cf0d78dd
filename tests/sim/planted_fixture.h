// Violations that the tests of the oracle plant in short histories.
#pragma once

#include <ostream>
#include <span>
#include <string_view>

#include "tests/sim/history_builder.h"

namespace loam::sim {

/// A violation in an otherwise correct history, and the invariant that the oracle must name.
struct PlantedViolation {
  std::string_view invariant;
  void (*build)(HistoryBuilder&);
};

/// Names the test case after the invariant.
inline void PrintTo(const PlantedViolation& planted, std::ostream* out) { *out << planted.invariant; }

/// Violations in transactions and their scans.
std::span<const PlantedViolation> planted_in_transactions();

}  // namespace loam::sim
