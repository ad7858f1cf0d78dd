// Lists of processor cores, as options name them.
#pragma once

#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace loam::storage {

/// "2,4-7" → 2 4 5 6 7, in the order of the text; "" → none. kInvalidArgument: not such a list, or a core that this
/// process may not use (the message names those that it may).
Result<std::vector<unsigned>> parse_cores(std::string_view text);

/// Binds the calling thread to a core of that list. A system that refuses is not complained about: the thread then runs
/// where the system puts it.
void run_on(unsigned core);

}  // namespace loam::storage
