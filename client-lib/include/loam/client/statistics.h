// What a client has done so far.
#pragma once

#include <cstdint>
#include <tuple>

#include "common/base/statistics.h"
#include "common/net/transport_counters.h"

namespace loam::client {

/// Numbers of one client since it connected, without those of the network.
template <class Number>
struct ClientNumbers {
  Number begun{}, committed{}, aborted{}, conflicts{}, foreseen_conflicts{}, retries{};
  Number unknown_outcomes{}, resolved{}, read_only{}, round_trips{}, scans{};
  Number sessions_opened{}, fenced{}, resumed{}, resent{}, overloaded{};

  static constexpr auto fields() {
    using S = ClientNumbers;
    using statistics::counter;
    return std::tuple(
        counter("begun", &S::begun, "read-write transactions"),
        counter("committed", &S::committed, "read-write transactions, those without a write included"),
        counter("aborted", &S::aborted, "read-write transactions ended by the application, a conflict or an error"),
        counter("conflicts", &S::conflicts, "of the aborted: lost against another transaction"),
        counter("foreseen_conflicts", &S::foreseen_conflicts,
                "of the conflicts: with a transaction of this client, before anything was sent"),
        counter("retries", &S::retries, "attempts of run_transaction() after the first"),
        counter("unknown_outcomes", &S::unknown_outcomes, "commits whose outcome could not be told"),
        counter("resolved", &S::resolved, "commits whose answer was lost and whose outcome was found out"),
        counter("read_only", &S::read_only, "read-only transactions"),
        counter("round_trips", &S::round_trips, "times a transaction waited for the network"),
        counter("scans", &S::scans, "queries started"),
        counter("sessions_opened", &S::sessions_opened, "sessions, the first one included"),
        counter("fenced", &S::fenced, "sessions that ended before the client did"),
        counter("resumed", &S::resumed, "sessions that went on over a new connection to the commit manager"),
        counter("resent", &S::resent, "requests that were sent again after a lost connection"),
        counter("overloaded", &S::overloaded, "answers and begins that were kOverloaded"));
  }
};

/// Counts since the client connected. Taken without stopping the worker: each number is exact, their sum may be a
/// moment apart.
struct ClientStatistics : ClientNumbers<uint64_t>, net::TransportNumbers<uint64_t> {
  static constexpr auto fields() {
    return std::tuple_cat(ClientNumbers<uint64_t>::fields(), net::TransportNumbers<uint64_t>::fields());
  }
};

}  // namespace loam::client
