// The counters of a transport.
#pragma once

#include <tuple>

#include "common/base/statistics.h"

/// The network between the processes of a cluster.
namespace loam::net {

/// The numbers of one transport since its start, or sums over several transports. The field list explains each.
template <class Number>
struct TransportNumbers {
  /// @cond
  Number messages_in{}, messages_out{};
  Number frames_in{}, frames_out{};
  Number bytes_in{}, bytes_out{};
  Number flushes{}, work_requests{}, inline_sends{}, direct_writes{}, direct_bytes{};
  Number polls{}, empty_polls{}, sleeps{}, wakes{};
  Number credit_stalls{}, overloads{};
  Number connections_opened{}, connections_closed{}, connections_refused{}, connections_malformed{};
  Number buffer_allocations{};
  /// @endcond

  /// Name, kind and meaning of each count.
  static constexpr auto fields() {
    using S = TransportNumbers;
    using statistics::counter;
    return std::tuple(
        counter("messages_in", &S::messages_in, "messages received"),
        counter("messages_out", &S::messages_out, "messages sent"),
        counter("frames_in", &S::frames_in, "frames received with messages, fragments or one-sided writes"),
        counter("frames_out", &S::frames_out, "frames sent with messages, fragments or one-sided writes"),
        counter("bytes_in", &S::bytes_in, "bytes received, headers and control frames included"),
        counter("bytes_out", &S::bytes_out, "bytes sent, headers and control frames included"),
        counter("flushes", &S::flushes, "calls that gave bytes to the network; over verbs, doorbells"),
        counter("work_requests", &S::work_requests, "over verbs: work requests posted, over all doorbells"),
        counter("inline_sends", &S::inline_sends, "over verbs: sends whose bytes were copied into the request"),
        counter("direct_writes", &S::direct_writes, "over verbs: one-sided writes that the peer's device carries out"),
        counter("direct_bytes", &S::direct_bytes, "over verbs: bytes of these writes; the peer does not count them"),
        counter("polls", &S::polls, "rounds of the network threads"),
        counter("empty_polls", &S::empty_polls, "rounds without an event"),
        counter("sleeps", &S::sleeps, "rounds that slept"),
        counter("wakes", &S::wakes, "sleeps that another thread interrupted"),
        counter("credit_stalls", &S::credit_stalls, "flushes that left frames queued because credits ran out"),
        counter("overloads", &S::overloads, "sends refused because the peer does not read"),
        counter("connections_opened", &S::connections_opened, "connections that completed their handshake"),
        counter("connections_closed", &S::connections_closed, "connections that ended after their handshake"),
        counter("connections_refused", &S::connections_refused, "connections that ended before their handshake"),
        counter("connections_malformed", &S::connections_malformed, "connections closed because of malformed bytes"),
        counter("buffer_allocations", &S::buffer_allocations, "buffers allocated from the heap"));
  }
};

/// The counters of one transport. Its thread counts; any thread may read. `buffer_allocations` does not rise in the
/// steady state.
using TransportCounters = TransportNumbers<statistics::Counter>;

}  // namespace loam::net
