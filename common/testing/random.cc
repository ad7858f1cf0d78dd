#include "common/testing/random.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace loam::testing {

uint64_t test_seed(uint64_t fallback) {
  const char* text = std::getenv("LOAM_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : fallback;
  std::printf("seed %" PRIu64 " (LOAM_SEED=%" PRIu64 " repeats this run)\n", seed, seed);
  return seed;
}

}  // namespace loam::testing
