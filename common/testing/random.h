// Seeded random numbers for tests. The same seed gives the same numbers.
#pragma once

#include <cstdint>
#include <limits>

namespace loam::testing {

/// A generator of random numbers: xoshiro256**, seeded by splitmix64 [Blackman and Vigna]. Meets the requirements
/// UniformRandomBitGenerator of the standard library. Threads: one.
class Random {
 public:
  using result_type = uint64_t;

  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) word = split(seed);
  }

  /// A random number of 64 bits.
  uint64_t operator()() {
    const uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
  }
  /// A number of the uniform distribution over [0, bound), with a bias of at most bound / 2^64. 0 if `bound` is 0.
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>((*this)()) * bound) >> 64);
  }
  /// A number of the uniform distribution over [low, high].
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  /// True with probability 1 / n.
  bool one_in(uint64_t n) { return below(n) == 0; }
  /// A number of the uniform distribution over [0, 1).
  double fraction() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
  /// Another generator, whose numbers are independent of the later numbers of this one. For a test in which each thread
  /// has its own generator.
  Random fork() { return Random((*this)()); }

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }

  /// One step of splitmix64: advances `state` and returns a number. Consecutive states give numbers that look
  /// independent.
  static uint64_t split(uint64_t& state) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t x = state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

 private:
  static uint64_t rotate(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

  uint64_t state_[4];
};

/// The seed of a test: the environment variable LOAM_SEED if it is set, otherwise `fallback`. Each call prints the
/// seed, so that a failing run can be repeated: "seed 42 (LOAM_SEED=42 repeats this run)".
uint64_t test_seed(uint64_t fallback);

}  // namespace loam::testing
