#include "common/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace loam {

void assertion_failed(const char* expression, const char* message, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: assertion failed: %s (%s)\n", file, line, message, expression);
  std::abort();
}

}  // namespace loam
