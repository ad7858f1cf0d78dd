// Waits between attempts.
#pragma once

#include <algorithm>
#include <cstdint>

#include <loam/client/options.h>

#include "common/base/status.h"

namespace loam::client {

/// True if a transaction that failed with this code has had no effect, and a new attempt in a new snapshot may
/// succeed.
inline bool is_retryable(StatusCode code) {
  return code == StatusCode::kConflict || code == StatusCode::kOverloaded || code == StatusCode::kSnapshotTooOld ||
         code == StatusCode::kWrongShard || code == StatusCode::kFenced || code == StatusCode::kUnavailable;
}

/// Exponential back-off with full jitter: a random time up to min(max, initial * 2^attempt), made from the number
/// `random`. Transactions that collided once would collide again after equal waits.
inline uint64_t backoff_ns(const RetryOptions& options, uint32_t attempt, uint64_t random) {
  const uint32_t shift = std::min(attempt, 40u);
  uint64_t limit = options.max_backoff_ns;
  if (options.initial_backoff_ns <= (limit >> shift)) limit = options.initial_backoff_ns << shift;
  return limit == 0 ? 0 : random % (limit + 1);
}

/// Bounds of the waits after errors of a server, which last longer than conflicts between transactions.
inline constexpr uint64_t kFirstServerBackoffNs = 2'000'000;
inline constexpr uint64_t kMaxServerBackoffNs = 500'000'000;

/// The wait of run_transaction() before its next attempt.
inline uint64_t retry_wait_ns(const RetryOptions& options, StatusCode code, uint32_t attempt, uint64_t random) {
  if (code != StatusCode::kOverloaded && code != StatusCode::kUnavailable) return backoff_ns(options, attempt, random);
  RetryOptions patient = options;
  patient.initial_backoff_ns = std::max(options.initial_backoff_ns, kFirstServerBackoffNs);
  patient.max_backoff_ns = std::max(options.max_backoff_ns, kMaxServerBackoffNs);
  return backoff_ns(patient, attempt, random);
}

}  // namespace loam::client
