// A sketch of a set, from which about its size can be told.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace loam {

/// HyperLogLog (Flajolet, Fusy, Gandouet, Meunier: HyperLogLog, AofA 2007, figure 3) with 4,096 registers and hashes of
/// 64 bits. The estimate is that of Ertl (New cardinality estimation algorithms for HyperLogLog sketches, 2017,
/// algorithm 6), which needs no corrections for small sets. Its standard error is about 1.04 / 64.
///
/// A sketch is a byte string: empty for the empty set; for few values a list of registers in three bytes each, their
/// number and rank; otherwise one byte for each register.
namespace distinct_sketch {

/// Number of registers.
inline constexpr size_t kRegisters = 4'096;

/// Adds a value by its hash, in which every bit is like a random one.
void add(std::string& sketch, uint64_t hash);
/// Adds all values of another sketch. kMalformed: the bytes are no sketch.
Status merge(std::string& into, std::string_view other);
/// The number of different values in about.
int64_t estimate(std::string_view sketch);

}  // namespace distinct_sketch
}  // namespace loam
