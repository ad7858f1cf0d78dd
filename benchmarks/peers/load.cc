// The load generator of load.h. One thread serves all connections, and a connection has exactly one batch in flight.
#include "benchmarks/peers/load.h"

#include <algorithm>
#include <stdexcept>

namespace loam::bench {
namespace {

constexpr uint64_t kPollNs = 100'000'000;
/// A server that sends no reply for this time counts as dead.
constexpr uint64_t kSilenceNs = 10'000'000'000;

}  // namespace

double LoadResult::latency_ns(double quantile) {
  std::sort(latencies.begin(), latencies.end());
  uint64_t all = 0;
  for (const auto& [ns, count] : latencies) all += count;
  const double wanted = quantile * static_cast<double>(all);
  uint64_t seen = 0;
  for (const auto& [ns, count] : latencies) {
    seen += count;
    if (static_cast<double>(seen) >= wanted) return ns;
  }
  return 0;
}

LoadGenerator::LoadGenerator(Peer& peer, size_t records, uint64_t seed)
    : peer_(peer), stamps_(records), channels_(peer.connections()), random_(seed) {}

void LoadGenerator::fill(size_t in_flight) {
  size_t under_way = 0;
  const auto answered = [&](size_t, size_t count) { under_way -= count; };
  std::vector<Operation> batch;
  for (size_t record = 0; record < stamps_.size();) {
    batch.clear();
    for (; record < stamps_.size() && batch.size() < in_flight; ++record) {
      batch.push_back({static_cast<uint32_t>(record), 0, true});
    }
    under_way = batch.size();
    peer_.send(0, batch);
    const uint64_t until_ns = wall_ns() + kSilenceNs;
    while (under_way > 0) {
      peer_.poll(kPollNs, answered);
      if (wall_ns() > until_ns) throw std::runtime_error("the server does not answer");
    }
  }
}

uint32_t LoadGenerator::draw(size_t connection, const LoadShape& shape) {
  for (;;) {
    // A connection draws only records of its own residue class, so that no other connection changes the stamp of a
    // record. A record whose put is in flight is skipped: the reply to a second operation on it would depend on the
    // order.
    const uint64_t own = stamps_.size() / shape.connections;
    const auto record = static_cast<uint32_t>(random_.below(own) * shape.connections + connection);
    if ((stamps_[record] & kPutInFlight) == 0) return record;
  }
}

void LoadGenerator::send_batch(size_t connection, const LoadShape& shape) {
  Channel& channel = channels_[connection];
  channel.batch.clear();
  channel.answered = 0;
  for (size_t i = 0; i < shape.in_flight; ++i) {
    const uint32_t record = draw(connection, shape);
    const bool put = shape.put_share > 0 && random_.fraction() < shape.put_share;
    // A put raises the stamp of the record. A get expects the stamp of the last acknowledged put.
    const uint32_t stamp = put ? (stamps_[record] + 1) & ~kPutInFlight : stamps_[record];
    if (put) stamps_[record] = stamp | kPutInFlight;
    channel.batch.push_back({record, stamp, put});
  }
  channel.sent_ns = wall_ns();
  peer_.send(connection, channel.batch);
}

void LoadGenerator::batch_answered(size_t connection) {
  for (const Operation& operation : channels_[connection].batch) {
    if (operation.put) stamps_[operation.record] = operation.stamp;
  }
}

LoadResult LoadGenerator::run(const LoadShape& shape) {
  if (shape.connections > channels_.size() || stamps_.size() < 2 * shape.connections * shape.in_flight) {
    throw std::invalid_argument("a load of more connections than there are, or of too few records");
  }
  LoadResult result;
  const uint64_t cpu_from = thread_cpu_ns();
  const uint64_t from = wall_ns();
  uint64_t now = from;
  size_t open = shape.connections;  // batches under way
  uint64_t heard_ns = from;
  const auto answered = [&](size_t connection, size_t count) {
    now = heard_ns = wall_ns();
    Channel& channel = channels_[connection];
    result.operations += count;
    result.latencies.emplace_back(static_cast<uint32_t>(std::min<uint64_t>(now - channel.sent_ns, UINT32_MAX)),
                                  static_cast<uint32_t>(count));
    channel.answered += count;
    if (channel.answered < channel.batch.size()) return;
    batch_answered(connection);
    // A connection whose batch is answered sends the next one at once. After the end of the turn it stops, so that no
    // reply is left for the next turn.
    if (now - from < shape.duration_ns) {
      send_batch(connection, shape);
    } else {
      --open;
    }
  };
  for (size_t i = 0; i < shape.connections; ++i) send_batch(i, shape);
  while (open > 0) {
    peer_.poll(kPollNs, answered);
    if (wall_ns() - heard_ns > kSilenceNs) throw std::runtime_error("the server does not answer");
  }
  result.elapsed_ns = now - from;
  result.client_cpu_ns = thread_cpu_ns() - cpu_from;
  return result;
}

}  // namespace loam::bench
