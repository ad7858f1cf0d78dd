#include "common/base/assert.h"

#include <array>
#include <cstdio>
#include <cstdlib>

#include "common/base/crash_reason.h"

namespace loam {

void assertion_failed(const char* expression, const char* message, const char* file, int line) {
  std::array<char, 512> text;
  std::snprintf(text.data(), text.size(), "%s:%d: assertion failed: %s (%s)", file, line, message, expression);
  std::fprintf(stderr, "%s\n", text.data());
  set_crash_reason(text.data());
  std::abort();
}

}  // namespace loam
