// Suite net: the cost of the transport relative to an echo over bare epoll, the cost of fibers, and a storage node
// relative to memcached.

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/harness/suite.h"
#include "benchmarks/net/raw_echo.h"
#include "benchmarks/peers/comparison.h"
#include "common/base/assert.h"
#include "common/command/number_options.h"
#include "common/fiber/scheduler.h"
#include "common/fiber/wait.h"
#include "common/net/tcp/tcp_transport.h"

namespace loam::bench {
namespace {

class EchoServer final : public net::Handler {
 public:
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override {
    for (const Bytes message : messages) LOAM_CHECK(connection.send(message).ok(), "the echo's queue overflows");
  }
  void on_closed(net::Connection&, const Status&) override {}
};

class EchoClient final : public net::Handler {
 public:
  explicit EchoClient(const EchoLoad& load) : load_(load), payload_(load.message_bytes, std::byte{'x'}) {}

  void on_connected(net::Connection& connection) override {
    states_.push_back(std::make_unique<State>());
    connection.set_context(states_.back().get());
    send_batch(connection);
  }
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override {
    State& state = *connection.context<State>();
    for (const Bytes message : messages) {
      std::memcpy(payload_.data(), &state.sequence, sizeof(state.sequence));
      LOAM_CHECK(equal(message, payload_), "a wrong reply");
      ++state.sequence;
    }
    calls_ += messages.size();
    state.answers += messages.size();
    if (state.answers < load_.batch) return;
    state.answers = 0;
    send_batch(connection);
  }
  void on_closed(net::Connection&, const Status& status) override {
    LOAM_CHECK(false, std::string(status.message()).c_str());
  }

  uint64_t calls() const { return calls_; }

 private:
  struct State {
    uint64_t sequence = 0;
    size_t answers = 0;
  };

  void send_batch(net::Connection& connection) {
    const uint64_t first = connection.context<State>()->sequence;
    for (uint64_t i = first; i < first + load_.batch; ++i) {
      std::byte* room = connection.reserve(payload_.size());
      LOAM_CHECK(room != nullptr, "a batch does not fit the queue");
      std::memcpy(room, payload_.data(), payload_.size());
      std::memcpy(room, &i, sizeof(i));
      connection.commit(payload_.size());
    }
  }

  const EchoLoad& load_;
  Buffer payload_;
  std::vector<std::unique_ptr<State>> states_;
  uint64_t calls_ = 0;
};

std::unique_ptr<net::Transport> make_transport(uint64_t spin_ns) {
  net::TransportOptions options;
  options.spin_ns = spin_ns;
  auto transport = net::make_tcp_transport(options);
  LOAM_CHECK(transport.ok(), std::string(transport.status().message()).c_str());
  return std::move(transport).value();
}

/// Runs the load through the transport. `messages_per_frame` receives the mean number of messages of one frame.
EchoResult transport_echo(const EchoLoad& load, double& messages_per_frame) {
  EchoServer echo;
  EchoClient drive(load);
  const auto server = make_transport(load.spin_ns);
  const auto client = make_transport(load.spin_ns);
  const auto listener = server->listen(*net::Address::parse("tcp://127.0.0.1:0"), echo);
  LOAM_CHECK(listener.ok(), "no port for the echo");
  const net::Address address = (*listener)->address();
  std::atomic<bool> stop{false};
  uint64_t server_cpu_ns = 0;
  std::thread thread([&] {
    const uint64_t cpu_from = thread_cpu_ns();
    while (!stop.load(std::memory_order_relaxed)) server->poll(net::kForever);  // relaxed: wake() comes after it
    server_cpu_ns = thread_cpu_ns() - cpu_from;
  });
  for (size_t i = 0; i < load.connections; ++i) LOAM_CHECK(client->connect(address, drive).ok(), "connect");
  while (client->counters().connections_opened.read() < load.connections) client->poll(net::kForever);
  // The handshakes are done. The measured time contains only calls.
  const uint64_t before = drive.calls();
  const uint64_t cpu_from = thread_cpu_ns();
  const uint64_t from = wall_ns();
  uint64_t now = from;
  while (now - from < load.duration_ns) {
    client->poll(100'000'000);
    now = wall_ns();
  }
  const uint64_t client_cpu_ns = thread_cpu_ns() - cpu_from;
  const auto calls = static_cast<double>(drive.calls() - before);
  stop.store(true, std::memory_order_relaxed);
  server->wake();
  thread.join();
  messages_per_frame = static_cast<double>(client->counters().messages_in.read()) /
                       static_cast<double>(client->counters().frames_in.read());
  return {calls * 1e9 / static_cast<double>(now - from), static_cast<double>(client_cpu_ns + server_cpu_ns) / calls};
}

/// Returns the CPU time of one suspend and one wake. Two fibers wake each other in turns.
double fiber_wake_ns(size_t turns) {
  fiber::SchedulerOptions options;
  options.idle = [](uint64_t) {};
  options.wake = [] {};
  fiber::FiberScheduler scheduler(options);
  fiber::WaitPoint ping, pong;
  size_t rounds = 0;
  LOAM_CHECK(scheduler
                 .spawn([&] {
                   for (; rounds < turns; ++rounds) {
                     pong.notify();
                     ping.wait();
                   }
                   pong.notify();
                 })
                 .ok(),
             "spawn");
  LOAM_CHECK(scheduler
                 .spawn([&] {
                   while (rounds < turns) {
                     ping.notify();
                     pong.wait();
                   }
                   ping.notify();
                 })
                 .ok(),
             "spawn");
  const uint64_t from = thread_cpu_ns();
  while (scheduler.run_round(0) > 0) {
  }
  return static_cast<double>(thread_cpu_ns() - from) / static_cast<double>(2 * turns);
}

/// Returns the CPU time to spawn, run and end an empty fiber. The fibers run in groups of 100.
double fiber_spawn_ns(size_t groups) {
  constexpr size_t kGroup = 100;
  fiber::SchedulerOptions options;
  options.idle = [](uint64_t) {};
  options.wake = [] {};
  fiber::FiberScheduler scheduler(options);
  size_t ran = 0;
  const uint64_t from = thread_cpu_ns();
  for (size_t g = 0; g < groups; ++g) {
    for (size_t i = 0; i < kGroup; ++i) LOAM_CHECK(scheduler.spawn([&] { ++ran; }).ok(), "spawn");
    scheduler.run_round(0);
  }
  const uint64_t spent = thread_cpu_ns() - from;
  LOAM_CHECK(ran == groups * kGroup, "fibers that did not run");
  return static_cast<double>(spent) / static_cast<double>(ran);
}

/// The load for the comparison with memcached, and the throughput of memcached on this class of machine.
constexpr size_t kPeerConnections = 4;
constexpr size_t kPeerInFlight = 64;
struct PeerFigure {
  const char* operation;
  double put_share;
  double reference_per_s;
};
constexpr PeerFigure kPeerFigures[] = {{"get", 0, 765'000}, {"put", 1, 716'000}};

class NetSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    command::add_unsigned(app, "--connections", load_.connections, {1, 64}, "of the echo");
    command::add_unsigned(app, "--batch", load_.batch, {1, 1024}, "calls of a connection under way");
    command::add_unsigned(app, "--message-bytes", load_.message_bytes, {8, 4096}, "a multiple of 8");
    command::add_unsigned(app, "--spin-us", spin_us_, {0, 1'000'000},
                          "looking for events before a sleep, transport and probe");
    command::add_unsigned(app, "--records", peers_.records, {1'024, 1 << 30}, "of storage node and memcached");
    app.add_option("--node-spin", peers_.servers.spin, "as --spin of loam-storage-node")->capture_default_str();
  }

  void run(Run& run) override {
    if (load_.message_bytes % 8 != 0 || load_.batch * (load_.message_bytes + 8) > 64 * 1024) {
      throw CLI::ValidationError("--message-bytes times --batch must stay below 64 KiB, and bytes be a multiple of 8");
    }
    load_.duration_ns = run.quick ? 200'000'000 : 1'000'000'000;
    compare(run, load_, "");
    EchoLoad single = load_;
    single.connections = 1;
    single.batch = 1;
    compare(run, single, "_one_by_one");
    fibers(run);
    against_memcached(run);
  }

 private:
  /// Compares the transport with the bare program, which either sleeps at once or spins first: the better of the two
  /// counts. Adds the figures net.tcp_vs_raw, net.tcp_calls_per_s, net.tcp_cpu_vs_raw and so on, each with `suffix`.
  void compare(Run& run, const EchoLoad& load, const std::string& suffix) const {
    EchoLoad spinning = load;
    spinning.spin_ns = spin_us_ * 1'000;
    double messages_per_frame = 0;
    Samples cpu[3];
    const auto keep_cpu = [&cpu](size_t variant, const EchoResult& result) {
      cpu[variant].values.push_back(result.cpu_ns_per_call);
      return result.calls_per_s;
    };
    const std::vector<Variant> variants = {
        {"transport", [&] { return keep_cpu(0, transport_echo(spinning, messages_per_frame)); }},
        {"raw, sleeping", [&] { return keep_cpu(1, raw_echo(load)); }},
        {"raw, spinning", [&] { return keep_cpu(2, raw_echo(spinning)); }},
    };
    const std::vector<Samples> rates = alternate(run.turns, variants);
    for (Samples& samples : cpu) samples.values.erase(samples.values.begin());  // the turn that does not count
    const std::vector<const Samples*> probes = {&rates[1], &rates[2]};
    const std::vector<const Samples*> cpu_probes = {&cpu[1], &cpu[2]};
    const Samples& ceiling = best_of(probes, true);
    const nlohmann::ordered_json options = {{"connections", load.connections},
                                            {"batch", load.batch},
                                            {"message_bytes", load.message_bytes},
                                            {"spin_us", spin_us_},
                                            {"messages_per_frame", messages_per_frame}};
    Report& report = run.report;
    report.add("net.tcp_vs_raw" + suffix, ratio_of(rates[0], ceiling), "ratio", Better::kHigher, options);
    report.add("net.tcp_cpu_vs_raw" + suffix, ratio_of(cpu[0], best_of(cpu_probes, false)), "ratio", Better::kLower,
               options);
    report.add("net.tcp_calls_per_s" + suffix, rates[0], "calls/s", Better::kHigher, options);
    report.add("net.raw_calls_per_s" + suffix, ceiling, "calls/s", Better::kHigher, options);
    report.add("net.tcp_cpu_ns" + suffix, cpu[0], "ns", Better::kLower, options);
  }

  static void fibers(Run& run) {
    const size_t turns = run.quick ? 200'000 : 2'000'000;
    const std::vector<Variant> variants = {{"wake", [&] { return fiber_wake_ns(turns); }},
                                           {"spawn", [&] { return fiber_spawn_ns(turns / 100); }}};
    const std::vector<Samples> samples = alternate(run.turns, variants);
    run.report.add("net.fiber_wake_ns", samples[0], "ns", Better::kLower);
    run.report.add("net.fiber_spawn_ns", samples[1], "ns", Better::kLower);
  }

  /// Compares gets in a snapshot and puts of a storage node with those of memcached. Adds net.get_cpu_vs_memcached
  /// with its components, and the same figures for puts.
  void against_memcached(Run& run) {
    peers_.seed = run.seed;
    peers_.servers.connections = kPeerConnections;
    const std::string missing = Servers::missing(peers_.servers);
    std::optional<Comparison> comparison;
    if (missing.empty()) comparison.emplace(peers_);
    for (const PeerFigure& figure : kPeerFigures) {
      const std::string name = std::string("net.") + figure.operation;
      if (!missing.empty()) {
        run.report.add_unmeasured(name + "_cpu_vs_memcached", "ratio", Better::kLower, missing);
        continue;
      }
      const LoadShape shape{kPeerConnections, kPeerInFlight, figure.put_share,
                            run.quick ? 400'000'000u : 2'000'000'000u};
      report_peers(run.report, name, figure.reference_per_s, comparison->run(shape, figure.put_share == 0, run.turns));
    }
  }

  void report_peers(Report& report, const std::string& name, double reference_per_s, const PeerPair& pair) const {
    const nlohmann::ordered_json options = {
        {"connections", kPeerConnections},      {"in_flight", kPeerInFlight},       {"records", peers_.records},
        {"value_bytes", peers_.value_bytes},    {"node_spin", peers_.servers.spin}, {"node", pair.node.to_json()},
        {"memcached", pair.memcached.to_json()}};
    // Only the first figure also needs a machine on which memcached reaches its reference.
    const std::string busy = invalid_reason(pair, 0);
    const auto add = [&](const char* what, const Samples& samples, const char* unit, Better better) {
      report.add(figure_of(name + what, samples, unit, better, busy));
    };
    report.add(figure_of(name + "_cpu_vs_memcached", ratio_of(pair.node.cpu_us, pair.memcached.cpu_us), "ratio",
                         Better::kLower, invalid_reason(pair, reference_per_s), options));
    add("_process_cpu_vs_memcached", ratio_of(pair.node.process_cpu_us, pair.memcached.process_cpu_us), "ratio",
        Better::kLower);
    add("_rate_vs_memcached", ratio_of(pair.node.per_s, pair.memcached.per_s), "ratio", Better::kHigher);
    add("_cpu_us", pair.node.cpu_us, "us", Better::kLower);
    add("_cpu_us_memcached", pair.memcached.cpu_us, "us", Better::kLower);
    add("s_per_s", pair.node.per_s, "ops/s", Better::kHigher);
    add("s_per_s_memcached", pair.memcached.per_s, "ops/s", Better::kHigher);
  }

  EchoLoad load_;
  Comparison::Options peers_;
  uint64_t spin_us_ = net::TransportOptions().spin_ns / 1'000;
};

LOAM_BENCH_SUITE(net, NetSuite, "the transport over bare epoll, and fibers");

}  // namespace
}  // namespace loam::bench
