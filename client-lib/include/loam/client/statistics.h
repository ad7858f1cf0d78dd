// What a client has done so far.
#pragma once

#include <cstdint>

namespace loam::client {

/// Counts since the client connected. Taken without stopping the worker: each number is exact, their sum may be a
/// moment apart.
struct ClientStatistics {
  uint64_t begun = 0;      ///< read-write transactions
  uint64_t committed = 0;  ///< read-write transactions, those without a write included
  uint64_t aborted = 0;    ///< by the application, a conflict or an error
  uint64_t conflicts = 0;  ///< of the aborted: lost against another transaction
  /// Of the conflicts: with a transaction of this client, before anything was sent.
  uint64_t foreseen_conflicts = 0;
  uint64_t retries = 0;           ///< attempts of run_transaction() after the first
  uint64_t unknown_outcomes = 0;  ///< commits whose outcome could not be told
  uint64_t resolved = 0;          ///< commits whose lost answer was resolved by R4
  uint64_t read_only = 0;         ///< read-only transactions
  uint64_t round_trips = 0;       ///< times a transaction waited for the network
  uint64_t scans = 0;             ///< queries started
  uint64_t sessions_opened = 0;   ///< the first one included
  uint64_t fenced = 0;            ///< sessions that ended before the client did
  uint64_t resumed = 0;           ///< sessions that went on over a new connection to the commit manager
  uint64_t resent = 0;            ///< requests that were sent again after a lost connection
  uint64_t overloaded = 0;        ///< answers and begins that were kOverloaded
  uint64_t messages_sent = 0, messages_received = 0;
  uint64_t frames_sent = 0, frames_received = 0;  ///< network messages that carry them
  uint64_t bytes_sent = 0, bytes_received = 0;
};

}  // namespace loam::client
