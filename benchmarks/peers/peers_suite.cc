// Suite peers: a storage node beside memcached, over connections, operations in flight and mixes.

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/harness/suite.h"
#include "benchmarks/peers/comparison.h"
#include "common/command/number_options.h"

namespace loam::bench {
namespace {

struct Mix {
  const char* name;
  double put_share;
  bool transactional;
};

/// Gets in a snapshot, puts, and both in equal parts on the table of the puts.
constexpr Mix kMixes[] = {{"get", 0, true}, {"put", 1, false}, {"half", 0.5, false}};

class PeersSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    command::add_unsigned(app, "--records", options_.records, {1, 1 << 30}, "of each server");
    command::add_unsigned(app, "--value-bytes", options_.value_bytes, {8, 100'000}, "of a record, beside its key");
    command::add_unsigned(app, "--memory", options_.servers.memory_bytes, {1 << 20, uint64_t{1} << 46},
                          "bytes of each server");
    command::add_unsigned_list(app, "--connections", connections_, {1, 64}, "as many lists of figures")->delimiter(',');
    command::add_unsigned_list(app, "--in-flight", in_flight_, {1, 1'024},
                               "operations of a connection under way, the same")
        ->delimiter(',');
    command::add_unsigned(app, "--turn-ms", turn_ms_, {0, 3'600'000}, "of one turn; 0: 100 with --quick, else 1,000");
    app.add_option("--node-spin", options_.servers.spin, "as --spin of loam-storage-node")->capture_default_str();
    command::add_unsigned(app, "--requests-per-event", options_.servers.requests_per_event, {1, 1'000'000},
                          "as -R of memcached");
  }

  void run(Run& run) override {
    options_.seed = run.seed;
    options_.servers.connections = 0;
    for (const size_t n : connections_) options_.servers.connections = std::max(options_.servers.connections, n);
    const std::string missing = Servers::missing(options_.servers);
    if (missing.empty()) return measure(run);
    for_each_shape([&](const Mix&, const LoadShape&, const std::string& name) {
      run.report.add_unmeasured(name + ".cpu_ratio", "ratio", Better::kLower, missing);
    });
  }

 private:
  template <class Function>
  void for_each_shape(Function function) const {
    for (const Mix& mix : kMixes) {
      for (const size_t connections : connections_) {
        for (const size_t in_flight : in_flight_) {
          function(mix, LoadShape{connections, in_flight, mix.put_share, 0},
                   fmt::format("peers.{}_{}x{}", mix.name, connections, in_flight));
        }
      }
    }
  }

  void measure(Run& run) {
    Comparison comparison(options_);
    const uint64_t turn_ms = turn_ms_ != 0 ? turn_ms_ : run.quick ? 100 : 1'000;
    for_each_shape([&](const Mix& mix, LoadShape shape, const std::string& name) {
      shape.duration_ns = turn_ms * 1'000'000;
      const PeerPair pair = comparison.run(shape, mix.transactional, run.turns);
      const nlohmann::ordered_json options = {{"records", options_.records},
                                              {"value_bytes", options_.value_bytes},
                                              {"node_spin", options_.servers.spin},
                                              {"node", pair.node.to_json()},
                                              {"memcached", pair.memcached.to_json()}};
      const std::string reason = invalid_reason(pair, 0);  // the references are for one shape of suite net
      Report& report = run.report;
      report.add(figure_of(name + ".cpu_ratio", ratio_of(pair.node.cpu_us, pair.memcached.cpu_us), "ratio",
                           Better::kLower, reason, options));
      report.add(figure_of(name + ".rate_ratio", ratio_of(pair.node.per_s, pair.memcached.per_s), "ratio",
                           Better::kHigher, reason));
      report.add(name + ".p99_ratio", ratio_of(pair.node.p99_us, pair.memcached.p99_us), "ratio", Better::kLower);
    });
  }

  Comparison::Options options_;
  std::vector<size_t> connections_ = {1, 4, 16};
  std::vector<size_t> in_flight_ = {1, 16, 64};
  uint64_t turn_ms_ = 0;
};

LOAM_BENCH_SUITE(peers, PeersSuite, "a storage node over TCP beside memcached");

}  // namespace
}  // namespace loam::bench
