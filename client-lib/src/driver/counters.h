// What one client counts.
#pragma once

#include "common/net/transport.h"

namespace loam::client {

/// Written by the worker's thread, read by any (ClientStatistics says what each means).
struct EngineCounters {
  net::Counter begun, committed, aborted, conflicts, foreseen_conflicts, retries, unknown_outcomes, resolved, read_only,
      round_trips, scans;
  net::Counter sessions_opened, fenced, resumed, resent, overloaded;
};

}  // namespace loam::client
