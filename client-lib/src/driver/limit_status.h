// What calls return whose fiber is bounded.
#pragma once

#include "common/base/status.h"

namespace loam::client {

/// In a fiber: the status of a call whose wait a limit of the fiber has ended.
Status limit_status();
/// In a fiber whose limit has ended: gives a failure to wait any longer, whatever its code, that of limit_status().
void name_end(Status& status);

}  // namespace loam::client
