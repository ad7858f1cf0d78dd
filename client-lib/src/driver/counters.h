// What one client counts.
#pragma once

#include <loam/client/statistics.h>

namespace loam::client {

/// Written by the worker's thread, read by any.
using EngineCounters = ClientNumbers<statistics::Counter>;

}  // namespace loam::client
