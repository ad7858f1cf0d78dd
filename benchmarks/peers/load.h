// The load generator: a closed loop of pipelined batches, the same for every server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/measure.h"
#include "benchmarks/peers/peer.h"
#include "common/testing/random.h"

namespace loam::bench {

/// One load.
struct LoadShape {
  size_t connections = 4;
  size_t in_flight = 64;  ///< operations of a batch: all are under way until the last one is answered
  double put_share = 0;   ///< 0: gets only, 1: puts only
  uint64_t duration_ns = 0;
};

/// What one turn of a load gave.
struct LoadResult {
  uint64_t operations = 0;
  uint64_t elapsed_ns = 0;                               ///< from the first batch to the last answer
  uint64_t client_cpu_ns = 0;                            ///< of this thread, which sleeps when nothing is there
  std::vector<std::pair<uint32_t, uint32_t>> latencies;  ///< nanoseconds from a batch to answers, how many answers

  double rate() const { return static_cast<double>(operations) * 1e9 / static_cast<double>(elapsed_ns); }
  /// Share of the time for which the client's core worked.
  double client_busy() const { return static_cast<double>(client_cpu_ns) / static_cast<double>(elapsed_ns); }
  /// Nanoseconds; sorts. 0 of nothing.
  double latency_ns(double quantile);
};

/// Role: drives one server and knows what it must hold: the stamp of each record's last put. Owner: the suite. One
/// thread. Every connection draws from records of its own, and never one whose put is under way, so that each answer
/// is determined.
class LoadGenerator {
 public:
  /// `records` is at least twice the operations in flight of any load.
  LoadGenerator(Peer& peer, size_t records, uint64_t seed);

  /// Puts every record once, stamp 0, over one connection.
  void fill(size_t in_flight);
  LoadResult run(const LoadShape& shape);

 private:
  static constexpr uint32_t kUnderWay = 1u << 31;  // in stamps_: a put is

  void send_batch(size_t connection, const LoadShape& shape);
  uint32_t draw(size_t connection, const LoadShape& shape);
  void batch_answered(size_t connection);

  struct Channel {
    std::vector<Operation> batch;
    size_t answered = 0;
    uint64_t sent_ns = 0;
  };

  Peer& peer_;
  std::vector<uint32_t> stamps_;  // by record
  std::vector<Channel> channels_;
  testing::Random random_;
};

}  // namespace loam::bench
