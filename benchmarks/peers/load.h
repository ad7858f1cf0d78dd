// The load generator: a closed loop of pipelined batches, which is the same for every server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/harness/measure.h"
#include "benchmarks/peers/peer.h"
#include "common/testing/random.h"

namespace loam::bench {

/// The parameters of a load.
struct LoadShape {
  size_t connections = 4;
  size_t in_flight = 64;  ///< operations of a batch; the next batch follows the last reply
  double put_share = 0;   ///< 0: gets only, 1: puts only
  uint64_t duration_ns = 0;
};

/// The measurements of one turn of a load.
struct LoadResult {
  uint64_t operations = 0;
  uint64_t elapsed_ns = 0;     ///< from the first batch to the last reply
  uint64_t client_cpu_ns = 0;  ///< CPU time of this thread, which sleeps while no reply is there
  std::vector<std::pair<uint32_t, uint32_t>> latencies;  ///< (nanoseconds from a batch to replies, number of replies)

  double rate() const { return static_cast<double>(operations) * 1e9 / static_cast<double>(elapsed_ns); }
  /// Share of the time for which the load generator was busy.
  double client_busy() const { return static_cast<double>(client_cpu_ns) / static_cast<double>(elapsed_ns); }
  /// The quantile of the latencies in nanoseconds; 0 without replies. Sorts `latencies`.
  double latency_ns(double quantile);
};

/// Drives one server and knows what the server must hold: the stamp of the last put of each record. Every connection
/// draws from records of its own, and never draws a record whose put is in flight. So there is exactly one correct
/// reply to each operation. Owner: the suite. Threads: one.
class LoadGenerator {
 public:
  /// `records` must be at least twice the operations in flight of any load.
  LoadGenerator(Peer& peer, size_t records, uint64_t seed);

  /// Puts every record once, with stamp 0, over one connection.
  void fill(size_t in_flight);
  /// Runs one turn of a load.
  LoadResult run(const LoadShape& shape);

 private:
  static constexpr uint32_t kPutInFlight = 1u << 31;  // bit in stamps_: a put of the record is in flight

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
