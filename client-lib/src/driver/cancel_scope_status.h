// The status of calls that a limit of their fiber has ended.
#pragma once

#include "common/base/status.h"

namespace loam::client {

/// Returns kTimeout or kCancelled for a call whose wait was ended by a limit of the running fiber. In a fiber.
Status cancel_scope_status();
/// Replaces the code of a failed wait by that of cancel_scope_status(), if a limit of the running fiber has ended. In
/// a fiber.
void apply_cancel_scope_status(Status& status);

}  // namespace loam::client
