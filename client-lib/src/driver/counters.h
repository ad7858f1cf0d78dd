// Counters of one client.
#pragma once

#include <loam/client/statistics.h>

namespace loam::client {

/// The counts of ClientNumbers as atomic counters. The worker thread writes them; any thread reads them.
using EngineCounters = ClientNumbers<statistics::Counter>;

}  // namespace loam::client
