// The client library's recoverer, as the driver takes it.
#pragma once

#include "commit-manager/src/recovery/recovery_driver.h"

namespace loam::commit {

/// Starts client::Recoverers that reach the nodes by `scheme`.
StartRecovery run_recoverer(net::Scheme scheme);

}  // namespace loam::commit
