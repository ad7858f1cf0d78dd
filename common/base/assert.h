// Assertions in three tiers: always on (LOAM_CHECK), development builds (LOAM_DCHECK), and whole-structure checks.
//
// An assertion guards an invariant of Loam's own code. Bytes from the network never reach one: a decoder that meets bad
// bytes returns kMalformed.
#pragma once

namespace loam {

/// Prints the failed expression, the message and the source position to stderr, and aborts the process. For the macros
/// below.
[[noreturn]] void assertion_failed(const char* expression, const char* message, const char* file, int line);

}  // namespace loam

/// Aborts the process if `condition` is false, in every build. For a cheap invariant whose breach would damage data.
#define LOAM_CHECK(condition, message) \
  (__builtin_expect(!!(condition), 1) ? void(0) : ::loam::assertion_failed(#condition, message, __FILE__, __LINE__))

/// Aborts the process if `condition` is false, in every preset except release; release does not evaluate `condition`.
#ifdef LOAM_ASSERTIONS
#define LOAM_DCHECK(condition, message) LOAM_CHECK(condition, message)
#else
#define LOAM_DCHECK(condition, message) static_cast<void>(sizeof(!(condition)))
#endif

// The third tier is the function check_invariants() of each structure, which walks the whole structure. Tests call it.
