// Statistics of a client: transactions, conflicts, sessions, network.
#pragma once

#include <cstdint>
#include <tuple>

#include "common/base/statistics.h"
#include "common/net/transport/transport_counters.h"

namespace loam::client {

/// The counts of one client, without those of the network. `Number` is an atomic counter inside of the library and a
/// plain integer for applications. fields() names each count and explains it.
template <class Number>
struct ClientNumbers {
  /// @cond
  Number begun{}, committed{}, aborted{}, conflicts{}, local_conflicts{}, retries{};
  Number unknown_outcomes{}, resolved{}, read_only{}, round_trips{}, scans{};
  Number sessions_opened{}, fenced{}, resumed{}, resent{}, overloaded{};
  /// @endcond

  /// Name, place and explanation of each count.
  static constexpr auto fields() {
    using S = ClientNumbers;
    using statistics::counter;
    return std::tuple(
        counter("begun", &S::begun, "read-write transactions"),
        counter("committed", &S::committed, "read-write transactions, including those without a write"),
        counter("aborted", &S::aborted,
                "read-write transactions that the application aborted or that a conflict or an error ended"),
        counter("conflicts", &S::conflicts, "aborted transactions that lost against a concurrent writer"),
        counter("local_conflicts", &S::local_conflicts,
                "conflicts with transactions of this client, found before any write was sent"),
        counter("retries", &S::retries, "attempts of run_transaction() after the first"),
        counter("unknown_outcomes", &S::unknown_outcomes, "commits whose outcome the client could not learn"),
        counter("resolved", &S::resolved, "commits whose reply was lost and whose outcome the client learnt later"),
        counter("read_only", &S::read_only, "read-only transactions"),
        counter("round_trips", &S::round_trips, "times a transaction waited for the network"),
        counter("scans", &S::scans, "queries started"),
        counter("sessions_opened", &S::sessions_opened, "sessions opened, including the first one"),
        counter("fenced", &S::fenced, "sessions that ended before the client did"),
        counter("resumed", &S::resumed, "sessions resumed over a new connection to the commit manager"),
        counter("resent", &S::resent, "requests sent again after a lost connection"),
        counter("overloaded", &S::overloaded, "answers of servers and begins that were kOverloaded"));
  }
};

/// The counts of a client since it connected, with those of the network. A snapshot is taken while the worker runs:
/// each number is exact, but the numbers belong to slightly different moments.
struct ClientStatistics : ClientNumbers<uint64_t>, net::TransportNumbers<uint64_t> {
  /// Name, place and explanation of each count.
  static constexpr auto fields() {
    return std::tuple_cat(ClientNumbers<uint64_t>::fields(), net::TransportNumbers<uint64_t>::fields());
  }
};

}  // namespace loam::client
