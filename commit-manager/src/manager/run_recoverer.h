// The client library's recoverer, as the driver takes it.
#pragma once

#include <memory>

#include "commit-manager/src/recovery/recovery_driver.h"

namespace loam::commit {

/// Starts a client::Recoverer.
Result<std::unique_ptr<RecoveryWorker>> run_recoverer(client::RecovererOptions options);

}  // namespace loam::commit
