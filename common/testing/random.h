// Seeded randomness for tests: the same seed, the same run.
#pragma once

#include <cstdint>
#include <limits>

namespace loam::testing {

/// xoshiro256** seeded by splitmix64 [Blackman and Vigna]. A UniformRandomBitGenerator. Not thread-safe: one a thread.
class Random {
 public:
  using result_type = uint64_t;

  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) word = split(seed);
  }

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
  /// Uniform in [0, bound); 0 for bound 0. (By multiplication: a bias of bound / 2^64.)
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>((*this)()) * bound) >> 64);
  }
  /// Uniform in [low, high].
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  bool one_in(uint64_t n) { return below(n) == 0; }
  /// Uniform in [0, 1).
  double fraction() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
  /// Another generator, independent of what this one gives later. For one a thread.
  Random fork() { return Random((*this)()); }

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }

  /// One step of splitmix64: turns consecutive numbers into independent-looking ones.
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

/// The seed of a test: LOAM_SEED from the environment if set, otherwise `fallback`. Prints it, once a call, so that a
/// failing run can be repeated: "seed 42 (LOAM_SEED=42 repeats this run)".
uint64_t test_seed(uint64_t fallback);

}  // namespace loam::testing
