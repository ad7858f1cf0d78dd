// Both servers share one core and run all the time, but only one of them has load in a turn. The load generator runs
// on another core.
#include "benchmarks/peers/comparison.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace loam::bench {
namespace {

/// Operations in flight while the tables are filled.
constexpr size_t kFillInFlight = 256;
/// Minimum of memcached's throughput, as a share of its reference.
constexpr double kMinShareOfReference = 0.8;

void drop_first(PeerSamples& samples) {
  for (Samples* one : {&samples.per_s, &samples.cpu_us, &samples.process_cpu_us, &samples.client_busy, &samples.p50_us,
                       &samples.p99_us, &samples.p999_us}) {
    one->values.erase(one->values.begin());
  }
}

}  // namespace

nlohmann::ordered_json PeerSamples::to_json() const {
  return {{"per_s", per_s.median()},
          {"cpu_us", cpu_us.median()},
          {"process_cpu_us", process_cpu_us.median()},
          {"client_busy", client_busy.median()},
          {"p50_us", p50_us.median()},
          {"p99_us", p99_us.median()},
          {"p999_us", p999_us.median()}};
}

Comparison::Comparison(const Options& options)
    : content_(options.value_bytes, options.seed),
      servers_(options.servers),
      memcached_(servers_.memcached_address(), options.servers.connections, content_),
      node_({servers_.manager_address(), options.servers.connections, options.records}, content_),
      memcached_load_(memcached_, options.records, options.seed),
      node_load_(node_, options.records, options.seed) {
  // The records of both servers have the same content. The first transaction of the storage node fills the
  // transactional table, the puts fill the other one.
  node_.load();
  node_load_.fill(kFillInFlight);
  memcached_load_.fill(kFillInFlight);
}

double Comparison::turn(LoadGenerator& generator, const ServerProcess& server, const LoadShape& shape,
                        PeerSamples& into) {
  const ServerCpu before = server.cpu();
  LoadResult result = generator.run(shape);
  const ServerCpu after = server.cpu();
  const auto us_each = [&](uint64_t ns) {
    return static_cast<double>(ns) / 1e3 / static_cast<double>(result.operations);
  };
  into.per_s.values.push_back(result.rate());
  into.cpu_us.values.push_back(us_each(after.serving_ns - before.serving_ns));
  into.process_cpu_us.values.push_back(us_each(after.process_ns - before.process_ns));
  into.client_busy.values.push_back(result.client_busy());
  into.p50_us.values.push_back(result.latency_ns(0.5) / 1e3);
  into.p99_us.values.push_back(result.latency_ns(0.99) / 1e3);
  into.p999_us.values.push_back(result.latency_ns(0.999) / 1e3);
  return result.rate();
}

PeerPair Comparison::run(const LoadShape& shape, bool transactional, size_t turns) {
  PeerPair pair;
  node_.use_transactional(transactional);
  const std::vector<Variant> variants = {
      {"storage node", [&] { return turn(node_load_, servers_.node(), shape, pair.node); }},
      {"memcached", [&] { return turn(memcached_load_, servers_.memcached(), shape, pair.memcached); }},
  };
  alternate(turns, variants);
  drop_first(pair.node);
  drop_first(pair.memcached);
  return pair;
}

std::string invalid_reason(const PeerPair& pair, double reference_per_s) {
  const double busy = std::max(pair.node.client_busy.median(), pair.memcached.client_busy.median());
  if (busy > kMaxClientBusy) {
    return fmt::format("the load generator was busy for {:.0f} % of the time: it is the limit", busy * 100);
  }
  const double reached = pair.memcached.per_s.median();
  if (reached < kMinShareOfReference * reference_per_s) {
    return fmt::format(
        "memcached reached {:.0f} operations/s, below {} of the {:.0f} of this class of machine: measure again "
        "in a quiet moment",
        reached, kMinShareOfReference, reference_per_s);
  }
  return {};
}

Figure figure_of(std::string name, const Samples& samples, std::string unit, Better better, const std::string& reason,
                 nlohmann::ordered_json options) {
  Figure figure{std::move(name),       samples.median(), std::move(unit), better,
                samples.values.size(), samples.spread(), reason,          std::move(options)};
  if (!reason.empty()) {
    // A figure that is not valid has no value, but a reader of the report still sees the median.
    figure.reason += fmt::format("; it was {:.4g} {} ", *figure.value, figure.unit);
    figure.value.reset();
  }
  return figure;
}

}  // namespace loam::bench
