// Lists of processor cores in options, and the binding of threads to cores.
#pragma once

#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace loam::storage {

/// Parses a list of cores: "2,4-7" gives 2 4 5 6 7, in the order of the text; "" gives an empty list. kInvalidArgument:
/// the text is no such list, or it names a core that this process may not use. The message names the cores that it may
/// use.
Result<std::vector<unsigned>> parse_cores(std::string_view text);

/// Binds the calling thread to a core. If the operating system refuses, the thread runs on any core.
void pin_to_core(unsigned core);

}  // namespace loam::storage
