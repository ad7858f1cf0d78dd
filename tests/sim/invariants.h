// The promises that the oracle checks, each with its name and the rule of the protocol behind it.
#pragma once

#include <span>
#include <string_view>

namespace loam::sim {

/// One promise of Loam whose violation a client can observe.
struct Invariant {
  std::string_view name;  ///< the value of Oracle::invariant(); documents and mutants use it
  std::string_view rule;  ///< rule of docs/protocol.md (R…), or section of docs/architecture.md
  std::string_view text;  ///< the observation that must never happen
};

/// Every invariant whose name a call of Oracle::violate() uses.
std::span<const Invariant> invariants();
/// Null if no invariant has that name.
const Invariant* find_invariant(std::string_view name);

}  // namespace loam::sim
