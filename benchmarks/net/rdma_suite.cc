// Suite rdma: the transport over verbs relative to perftest, and the benefit of verbs for transactions. Needs an RDMA
// device; `make bench-rdma` provides one in an emulated guest.

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <loam/client/client.h>

#include "benchmarks/harness/check_ok.h"
#include "benchmarks/harness/suite.h"
#include "benchmarks/peers/perftest.h"
#include "benchmarks/tx/transfers.h"
#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/net/make_transport.h"
#include "common/net/transport/transport.h"
#include "deploy/cli/src/cluster/one_process.h"

namespace loam::bench {
namespace {

/// Messages that a sender may have in flight to one peer by its credits. perftest gets the same window.
constexpr size_t kWindow = 16;
constexpr size_t kSmallBytes = 64;
/// Number of valid pairs of runs, and the limit that makes a pair invalid. The emulated device (Soft-RoCE) is very
/// slow at times, and a pair from such a time tells nothing about the transport.
constexpr size_t kValidPairs = 5;
constexpr size_t kMaxPairs = 15;
constexpr size_t kTurnsAPair = 5;
constexpr double kMaxRoundTripUs = 1'000;
constexpr uint64_t kPatienceNs = 60'000'000'000;

/// Returns every message to its sender. For the measurement of rates it only counts the messages.
class RemoteHandler final : public net::Handler {
 public:
  explicit RemoteHandler(bool answers) : answers_(answers) {}
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override {
    for (const Bytes message : messages) {
      if (answers_) LOAM_CHECK(connection.send(message).ok(), "the echo's queue overflows");
    }
    received_.store(received_.load(std::memory_order_relaxed) + messages.size(),
                    std::memory_order_relaxed);  // one writer
  }
  void on_closed(net::Connection&, const Status&) override {}
  uint64_t received() const { return received_.load(std::memory_order_relaxed); }  // relaxed: a number

 private:
  const bool answers_;
  std::atomic<uint64_t> received_{0};
};

/// Checks the replies of an echo.
class LocalHandler final : public net::Handler {
 public:
  explicit LocalHandler(size_t bytes) : expected_(bytes, std::byte{'x'}) {}
  void on_messages(net::Connection&, std::span<const Bytes> messages) override {
    for (const Bytes message : messages) {
      LOAM_CHECK(equal(message, expected_), "a wrong reply");
      ++answers;
    }
  }
  void on_closed(net::Connection&, const Status& status) override {
    LOAM_CHECK(closing, std::string(status.message()).c_str());
  }
  const Buffer& expected() const { return expected_; }

  uint64_t answers = 0;
  bool closing = false;

 private:
  const Buffer expected_;
};

/// Two transports of this process, each polled by a thread of its own, with a connection between them.
class ConnectionPair {
 public:
  ConnectionPair(const std::string& host, net::Scheme scheme, RemoteHandler& far, LocalHandler& near)
      : local_handler_(near) {
    const auto make = [scheme] {
      net::TransportOptions options;
      options.spin_ns = 1'000'000'000;  // as perftest, which polls
      auto transport = net::make_transport(scheme, options);
      LOAM_CHECK(transport.ok(), transport.status().to_string().c_str());
      return std::move(transport).value();
    };
    remote_ = make();
    local_ = make();
    const auto listener = remote_->listen({scheme, host, 0}, far);
    LOAM_CHECK(listener.ok(), listener.status().to_string().c_str());
    const net::Address address = (*listener)->address();
    thread_ = std::thread([this] {
      while (!stop_.load(std::memory_order_relaxed)) remote_->poll(100'000'000);  // relaxed: wake() comes after it
    });
    const auto connection = local_->connect(address, near);
    LOAM_CHECK(connection.ok(), connection.status().to_string().c_str());
    connection_ = *connection;
    poll_until([&] { return connection_->is_open(); });
  }
  ~ConnectionPair() {
    local_handler_.closing = true;
    stop_.store(true, std::memory_order_relaxed);  // relaxed: wake() comes after it
    remote_->wake();
    thread_.join();
  }
  ConnectionPair(const ConnectionPair&) = delete;
  ConnectionPair& operator=(const ConnectionPair&) = delete;

  net::Connection& connection() { return *connection_; }
  net::Transport& near() { return *local_; }
  template <class Done>
  void poll_until(Done done) {
    const uint64_t until = RealEnv::now_ns() + kPatienceNs;
    while (!done()) {
      local_->poll(100'000);
      LOAM_CHECK(RealEnv::now_ns() < until, "nothing comes any more");
    }
  }

 private:
  LocalHandler& local_handler_;
  std::unique_ptr<net::Transport> remote_, local_;
  net::Connection* connection_ = nullptr;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Median of the round trips of one message, microseconds.
double round_trip_us(const std::string& host, net::Scheme scheme, size_t bytes, size_t rounds) {
  RemoteHandler far(true);
  LocalHandler near(bytes);
  ConnectionPair pair(host, scheme, far, near);
  Samples trips;
  for (size_t round = 0; round < rounds; ++round) {
    const uint64_t from = wall_ns();
    LOAM_CHECK(pair.connection().send(near.expected()).ok(), "a message is not taken");
    pair.poll_until([&] { return near.answers > round; });
    trips.values.push_back(static_cast<double>(wall_ns() - from) / 1'000);
  }
  return trips.median();
}

/// Returns the messages per second in one direction. Each message travels in a network message of its own, because
/// the sender gives the connection no message while another one waits in it.
double messages_per_s(const std::string& host, size_t bytes, size_t messages) {
  RemoteHandler far(false);
  LocalHandler near(bytes);
  ConnectionPair pair(host, net::Scheme::kRdma, far, near);
  const uint64_t from = wall_ns();
  for (size_t sent = 0; sent < messages;) {
    while (sent < messages && pair.connection().queued_bytes() == 0) {
      LOAM_CHECK(pair.connection().send(near.expected()).ok(), "a message is not taken");
      pair.connection().flush();
      ++sent;
    }
    pair.near().poll(0);
  }
  pair.poll_until([&] { return far.received() == messages; });
  const uint64_t spent_ns = wall_ns() - from;
  LOAM_CHECK(pair.near().counters().frames_out.read() == messages, "messages travelled together");
  return static_cast<double>(messages) * 1e9 / static_cast<double>(spent_ns);
}

struct BatchResult {
  double messages_per_s = 0;
  double sends_a_doorbell = 0;
  double messages_a_frame = 0;
  double empty_poll_share = 0;
};

/// Measures an echo of `batch` messages at a time, which share frames.
BatchResult echo(const std::string& host, net::Scheme scheme, size_t bytes, size_t batch, size_t rounds) {
  RemoteHandler far(true);
  LocalHandler near(bytes);
  ConnectionPair pair(host, scheme, far, near);
  const uint64_t from = wall_ns();
  for (size_t round = 1; round <= rounds; ++round) {
    for (size_t i = 0; i < batch; ++i) {
      LOAM_CHECK(pair.connection().send(near.expected()).ok(), "a message is not taken");
    }
    pair.poll_until([&] { return near.answers == round * batch; });
  }
  const auto spent_ns = static_cast<double>(wall_ns() - from);
  const net::TransportCounters& counters = pair.near().counters();
  const auto count = [](const statistics::Counter& counter) { return static_cast<double>(counter.read()); };
  return {static_cast<double>(rounds * batch) * 1e9 / spent_ns, count(counters.work_requests) / count(counters.flushes),
          count(counters.messages_out) / count(counters.frames_out),
          count(counters.empty_polls) / count(counters.polls)};
}

/// A cluster of this process on one network, with clients.
class Cluster {
 public:
  Cluster(net::Scheme scheme, const std::string& host) {
    cli::OneProcessOptions options = cli::OneProcessOptions::on_free_ports();
    const std::string listen = std::string(net::to_string(scheme)) + "://" + host + ":0";
    options.manager.listen = listen;
    options.node.listen = listen;
    options.node.memory_bytes = uint64_t{256} << 20;
    cluster_ = value_or_die(cli::OneProcessCluster::start(options));
    mover_ = value_or_die(client::Client::connect(cluster_->address()));
    watcher_ = value_or_die(client::Client::connect(cluster_->address()));
  }
  client::Client& mover() { return *mover_; }
  client::Client& watcher() { return *watcher_; }

 private:
  std::unique_ptr<cli::OneProcessCluster> cluster_;
  std::unique_ptr<client::Client> mover_, watcher_;
};

class RdmaSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    app.add_option("--host", host_, "an address of this host's RDMA device; without one nothing is measured");
  }

  void run(Run& run) override {
    const Status there = host_.empty() ? Status(StatusCode::kUnavailable, "no --host, an address of an RDMA device")
                                       : net::make_transport(net::Scheme::kRdma).status();
    if (!there.ok()) {
      const std::string why = std::string(there.message()) + "; make bench-rdma has a device, in an emulated guest";
      run.report.add_unmeasured("rdma.lat_vs_perftest", "ratio", Better::kLower, why);
      run.report.add_unmeasured("rdma.rate_vs_perftest", "ratio", Better::kHigher, why);
      return;
    }
    beside_perftest(run);
    by_size(run);
    transactions(run);
  }

 private:
  /// The medians of one pair. The runs of the two sides take turns. Each run has a connection of its own, because the
  /// speed of a connection depends on the cores that its threads and the device happen to get.
  struct PerftestComparison {
    Samples loam_us{}, perftest_us{}, loam_per_s{}, perftest_per_s{};
  };
  Result<PerftestComparison> take_pair(size_t rounds) const {
    PerftestComparison pair;
    PerftestOptions options{.host = host_, .message_bytes = kSmallBytes, .window = kWindow};
    for (size_t turn = 0; turn < kTurnsAPair; ++turn) {
      pair.loam_us.values.push_back(round_trip_us(host_, net::Scheme::kRdma, kSmallBytes, rounds));
      pair.loam_per_s.values.push_back(messages_per_s(host_, kSmallBytes, 4 * rounds));
      options.iterations = rounds;
      LOAM_ASSIGN_OR_RETURN(const double their_trip, perftest_round_trip_us(options));
      options.iterations = 4 * rounds;
      LOAM_ASSIGN_OR_RETURN(const double their_rate, perftest_messages_per_s(options));
      pair.perftest_us.values.push_back(their_trip);
      pair.perftest_per_s.values.push_back(their_rate);
    }
    return pair;
  }

  void beside_perftest(Run& run) {
    const size_t rounds = run.quick ? 1'000 : 5'000;
    Samples loam_us, perftest_us, loam_per_s, perftest_per_s;
    size_t pairs = 0;
    std::string why = "fewer than " + std::to_string(kValidPairs) + " of " + std::to_string(kMaxPairs) +
                      " pairs had round trips below 1 ms on both sides: the device was in its slow mood";
    for (; pairs < kMaxPairs && loam_us.values.size() < kValidPairs; ++pairs) {
      const Result<PerftestComparison> pair = take_pair(rounds);
      if (!pair.ok()) {
        why = std::string(pair.status().message());
        break;
      }
      const double trip = pair->loam_us.median();
      const double their_trip = pair->perftest_us.median();
      run.report.note("pair " + std::to_string(pairs + 1) + ": round trip " + std::to_string(trip) + " us, perftest " +
                      std::to_string(their_trip) + "; messages/s " + std::to_string(pair->loam_per_s.median()) +
                      ", perftest " + std::to_string(pair->perftest_per_s.median()));
      if (trip > kMaxRoundTripUs || their_trip > kMaxRoundTripUs) continue;
      loam_us.values.push_back(trip);
      perftest_us.values.push_back(their_trip);
      loam_per_s.values.push_back(pair->loam_per_s.median());
      perftest_per_s.values.push_back(pair->perftest_per_s.median());
    }
    if (loam_us.values.size() < kValidPairs) {
      run.report.add_unmeasured("rdma.lat_vs_perftest", "ratio", Better::kLower, why);
      run.report.add_unmeasured("rdma.rate_vs_perftest", "ratio", Better::kHigher, why);
      return;
    }
    const nlohmann::ordered_json with = {{"message_bytes", kSmallBytes}, {"window", kWindow}, {"pairs_tried", pairs}};
    run.report.add("rdma.lat_vs_perftest", ratio_of(loam_us, perftest_us), "ratio", Better::kLower, with);
    run.report.add("rdma.rate_vs_perftest", ratio_of(loam_per_s, perftest_per_s), "ratio", Better::kHigher, with);
    run.report.add("rdma.round_trip_us", loam_us, "us", Better::kLower, with);
    run.report.add("rdma.messages_per_s", loam_per_s, "messages/s", Better::kHigher, with);
  }

  /// Measures the rate of echoes by the size of a message and by the number of messages that are sent together.
  void by_size(Run& run) {
    for (const size_t bytes : {size_t{64}, size_t{1'024}, size_t{16'384}}) {
      for (const size_t batch : {size_t{1}, size_t{8}, size_t{32}}) {
        const size_t rounds = (run.quick ? 200 : 2'000) / batch + 10;
        std::vector<BatchResult> results;
        Samples rate;
        for (size_t turn = 0; turn < 3; ++turn) {
          results.push_back(echo(host_, net::Scheme::kRdma, bytes, batch, rounds));
          rate.values.push_back(results.back().messages_per_s);
        }
        const std::string name = "rdma.echo_" + std::to_string(bytes) + "_x" + std::to_string(batch) + "_per_s";
        run.report.add(name, rate, "messages/s", Better::kHigher,
                       {{"message_bytes", bytes},
                        {"batch", batch},
                        {"sends_a_doorbell", results.back().sends_a_doorbell},
                        {"messages_a_frame", results.back().messages_a_frame},
                        {"empty_poll_share", results.back().empty_poll_share}});
      }
    }
  }

  /// Measures gets and transfers over verbs and over TCP, in turns.
  void transactions(Run& run) {
    Cluster over_rdma(net::Scheme::kRdma, host_);
    Cluster over_tcp(net::Scheme::kTcp, "127.0.0.1");
    Samples operations_a_message;
    TransferOptions options;
    options.accounts = 1'000;
    options.fibers = 32;
    options.seed = run.seed;
    options.duration_ns = run.quick ? 1'000'000'000 : 5'000'000'000;
    unsigned turn = 0;
    const auto transfers = [&](Cluster& cluster, bool count) {
      options.table = "accounts_" + std::to_string(++turn);
      const client::Table table = value_or_die(open_accounts(cluster.mover(), options));
      const TransferReport report = run_transfers(cluster.mover(), cluster.watcher(), table, options);
      LOAM_CHECK(report.ok(), report.wrong.empty() ? "a wrong sum" : report.wrong[0].c_str());
      const client::ClientStatistics& s = report.statistics;
      // A transfer is two reads and two updates. Its begin and its commit do not count as operations.
      const auto messages = static_cast<double>(s.frames_out + s.frames_in);
      if (count) operations_a_message.values.push_back(4 * static_cast<double>(report.transfers) / messages);
      LOAM_CHECK(cluster.mover().drop_table(options.table).ok(), "the table cannot be dropped");
      return static_cast<double>(report.transfers) / report.seconds;
    };
    const std::vector<Variant> movers = {{"rdma", [&] { return transfers(over_rdma, true); }},
                                         {"tcp", [&] { return transfers(over_tcp, false); }}};
    const std::vector<Samples> moved = alternate(run.turns, movers);
    operations_a_message.values.erase(operations_a_message.values.begin());  // the turn that does not count
    run.report.add("rdma.operations_a_network_message", operations_a_message, "operations", Better::kHigher,
                   {{"fibers", options.fibers}});
    run.report.add("rdma.transfers_per_s", moved[0], "tx/s", Better::kHigher);
    run.report.add("rdma.transfers_over_tcp", ratio_of(moved[0], moved[1]), "ratio", Better::kHigher);

    const size_t rounds = run.quick ? 20 : 200;
    const std::vector<Variant> readers = {{"rdma", [&] { return gets(over_rdma, rounds); }},
                                          {"tcp", [&] { return gets(over_tcp, rounds); }}};
    const std::vector<Samples> read = alternate(run.turns, readers);
    run.report.add("rdma.gets_per_s", read[0], "gets/s", Better::kHigher);
    run.report.add("rdma.gets_over_tcp", ratio_of(read[0], read[1]), "ratio", Better::kHigher);
  }

  /// Returns the gets per second of 32 fibers. Each request has one record.
  double gets(Cluster& cluster, size_t rounds) {
    constexpr unsigned kFibers = 32;
    TransferOptions options;
    options.accounts = 1'000;
    options.table = "read_" + std::to_string(++tables_);
    const client::Table table = value_or_die(open_accounts(cluster.mover(), options));
    uint64_t from = 0;
    uint64_t right = 0;
    cluster.mover().run([&] {
      from = wall_ns();
      std::vector<client::Task> tasks;
      tasks.reserve(kFibers);
      for (unsigned fiber = 0; fiber < kFibers; ++fiber) {
        tasks.push_back(cluster.mover().spawn([&, fiber] {
          client::Transaction transaction = value_or_die(cluster.mover().begin({.read_only = true}));
          for (size_t round = 0; round < rounds; ++round) {
            const auto record = transaction.get(table, Key((fiber * rounds + round) % options.accounts));
            right += record.ok() && record->int64(0) == kOpeningBalance;
          }
        }));
      }
      for (client::Task& task : tasks) task.join();
    });
    const uint64_t spent_ns = wall_ns() - from;
    LOAM_CHECK(right == kFibers * rounds, "a get brought something wrong");
    LOAM_CHECK(cluster.mover().drop_table(options.table).ok(), "the table cannot be dropped");
    return static_cast<double>(right) * 1e9 / static_cast<double>(spent_ns);
  }

  std::string host_;
  unsigned tables_ = 0;
};

LOAM_BENCH_SUITE(rdma, RdmaSuite, "the transport over verbs beside perftest, and transactions over it");

}  // namespace
}  // namespace loam::bench
