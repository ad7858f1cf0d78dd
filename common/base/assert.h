// Assertions in three tiers. Bytes from the network never reach one: they are kMalformed.
#pragma once

namespace loam {

/// Prints where and why, and aborts.
[[noreturn]] void assertion_failed(const char* expression, const char* message, const char* file, int line);

}  // namespace loam

/// Always on: a cheap invariant whose breach would damage data.
#define LOAM_CHECK(condition, message) \
  (__builtin_expect(!!(condition), 1) ? void(0) : ::loam::assertion_failed(#condition, message, __FILE__, __LINE__))

/// Development tier: on in every preset but release.
#ifdef LOAM_ASSERTIONS
#define LOAM_DCHECK(condition, message) LOAM_CHECK(condition, message)
#else
#define LOAM_DCHECK(condition, message) static_cast<void>(sizeof(!(condition)))
#endif

// The third tier, whole-structure checks, is each structure's check_invariants().
