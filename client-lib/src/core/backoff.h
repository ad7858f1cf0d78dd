// Waiting times between attempts.
#pragma once

#include <algorithm>
#include <cstdint>

#include <loam/client/options.h>

#include "common/base/status.h"

namespace loam::client {

/// Nothing has happened, and a new attempt in a new snapshot may succeed.
inline bool worth_retrying(StatusCode code) {
  return code == StatusCode::kConflict || code == StatusCode::kOverloaded || code == StatusCode::kSnapshotTooOld ||
         code == StatusCode::kWrongShard || code == StatusCode::kFenced || code == StatusCode::kUnavailable;
}

/// Exponential back-off with full jitter: a random time below min(max, initial * 2^attempt). Randomness is passed in.
/// Full jitter, because what collided once would collide again after equal waits.
inline uint64_t backoff_ns(const RetryOptions& options, uint32_t attempt, uint64_t random) {
  const uint32_t shift = std::min(attempt, 40u);
  uint64_t limit = options.max_backoff_ns;
  if (options.initial_backoff_ns <= (limit >> shift)) limit = options.initial_backoff_ns << shift;
  return limit == 0 ? 0 : random % (limit + 1);
}

/// Waits where not another transaction is in the way but a server: it needs longer to mend.
inline constexpr uint64_t kFirstServerBackoffNs = 2'000'000;
inline constexpr uint64_t kMaxServerBackoffNs = 500'000'000;

/// The wait before run_transaction()'s next attempt.
inline uint64_t retry_wait_ns(const RetryOptions& options, StatusCode code, uint32_t attempt, uint64_t random) {
  if (code != StatusCode::kOverloaded && code != StatusCode::kUnavailable) return backoff_ns(options, attempt, random);
  RetryOptions patient = options;
  patient.initial_backoff_ns = std::max(options.initial_backoff_ns, kFirstServerBackoffNs);
  patient.max_backoff_ns = std::max(options.max_backoff_ns, kMaxServerBackoffNs);
  return backoff_ns(patient, attempt, random);
}

}  // namespace loam::client
