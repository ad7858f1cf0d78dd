// Benchmarks end at an error or a wrong answer.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/base/assert.h"
#include "common/base/status.h"

namespace loam::bench {

/// The value of a call that must succeed.
template <class T>
T ready(Result<T> result) {
  LOAM_CHECK(result.ok(), result.status().to_string().c_str());
  return std::move(result).value();
}

/// The outcome of a call that must succeed and has no value.
inline void must(const Status& status) { LOAM_CHECK(status.ok(), status.to_string().c_str()); }

/// Ends the program: an answer of the code under test is wrong.
[[noreturn]] inline void wrong_answer(const char* what) {
  std::fprintf(stderr, "wrong answer: %s\n", what);
  std::abort();
}

}  // namespace loam::bench
