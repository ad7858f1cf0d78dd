// Why the process is about to abort itself. The report of the crash contains it.
#pragma once

#include <string_view>

namespace loam {

/// Keeps a text for the report of the abort that follows, for example a failed assertion. The first call counts. Any
/// thread; neither allocates nor locks.
void set_crash_reason(std::string_view reason);
/// Returns the text; empty if there is none. Safe in a signal handler.
std::string_view crash_reason();

}  // namespace loam
