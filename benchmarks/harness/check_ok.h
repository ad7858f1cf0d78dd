// Checks for benchmarks, which abort at an error or a wrong answer.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/base/assert.h"
#include "common/base/status.h"

namespace loam::bench {

/// Returns the value of a call that must succeed; aborts the program otherwise.
template <class T>
T value_or_die(Result<T> result) {
  LOAM_CHECK(result.ok(), result.status().to_string().c_str());
  return std::move(result).value();
}

/// Aborts the program unless the status is ok.
inline void check_ok(const Status& status) { LOAM_CHECK(status.ok(), status.to_string().c_str()); }

/// Aborts the program because the code under test gave a wrong answer.
[[noreturn]] inline void wrong_answer(const char* what) {
  std::fprintf(stderr, "wrong answer: %s\n", what);
  std::abort();
}

}  // namespace loam::bench
