// The promises that the oracle watches over, each with its name and its rule.
#pragma once

#include <span>
#include <string_view>

namespace loam::sim {

/// One promise of Loam that a client can see broken.
struct Invariant {
  std::string_view name;  ///< what Oracle::invariant() says; documents and mutants use it
  std::string_view rule;  ///< of protocol.md (R…), or the line of architecture.md
  std::string_view text;  ///< what must never be seen
};

/// Every name that Oracle::violate() is called with.
std::span<const Invariant> invariants();
/// Null if there is none of that name.
const Invariant* find_invariant(std::string_view name);

}  // namespace loam::sim
