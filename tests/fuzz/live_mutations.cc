// loam-live-mutations sends mutated messages to a running commit manager and storage node. tests/fuzz/live_test.py
// starts the cluster and lists the checks. The program prints every figure and exits with 1 at the first that is out
// of bounds.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <loam/client/client.h>

#include "common/base/env.h"
#include "common/base/thread.h"
#include "common/net/transport/transport.h"
#include "tests/fuzz/attack.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/tail_comparison.h"

namespace loam::fuzz {
namespace {

constexpr uint64_t kMaxHalfOpenBytes = 64 << 10;  // memory of a connection before its handshake is done
constexpr uint64_t kMaxGrowthBytes = 64u << 20;   // growth of a server between the first tenth of the messages and
                                                  // the last
// Upper bound on the repetitions of a latency measurement that is too noisy.
constexpr int kLatencyParts = 5;
constexpr uint64_t kPacedPerSecond = 10'000;  // messages to each server while latency is measured
constexpr size_t kPrepared = 10'000;          // different messages of one such measurement
constexpr uint64_t kKeys = 64;

struct Options {
  Servers servers;
  int manager_pid = 0;
  int node_pid = 0;
  uint64_t messages = 10'000'000;
  uint64_t seed = 0;
  uint64_t half_open = 2'000;
  uint64_t walk_stride = 1;
  uint64_t slices = 10;
  uint64_t slice_ms = 1'000;
};

[[noreturn]] void fail(const std::string& what) {
  std::printf("FAILED: %s\n", what.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

uint64_t rss_bytes(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  uint64_t pages = 0, resident = 0;
  if (!(file >> pages >> resident)) fail("process " + std::to_string(pid) + " has died");
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

size_t open_files(int pid) {
  DIR* folder = ::opendir(("/proc/" + std::to_string(pid) + "/fd").c_str());
  if (folder == nullptr) fail("process " + std::to_string(pid) + " has died");
  size_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

void check(const AttackCounts& counts, const char* part) {
  if (!counts.violation.empty()) fail(std::string(part) + ": " + counts.violation);
}

void print(const AttackCounts& counts, const char* part) {
  std::printf("%s: %lu messages on %lu connections, %lu answers, %lu ended early, %lu refused;", part, counts.messages,
              counts.connections, counts.answers, counts.early_ends, counts.refused);
  for (const auto& [code, count] : counts.errors) {
    std::printf(" %.*s %lu", static_cast<int>(to_string(code).size()), to_string(code).data(), count);
  }
  std::printf("\n");
  std::fflush(stdout);
}

// ---- the well-behaved client --------------------------------------------------------------------------------------

/// A client that sends only well-formed messages. The attacks must not change its records or slow it down.
class WellBehavedClient {
 public:
  explicit WellBehavedClient(const std::string& manager) {
    client::ClientOptions options;
    options.name = "good";
    auto connected = client::Client::connect(manager, options);
    if (!connected.ok()) fail("the well-behaved client cannot connect: " + connected.status().to_string());
    client_ = std::move(connected).value();
  }

  /// Creates its own table and one for the attackers.
  TableId prepare(testing::Random& random) {
    const Schema schema = Schema::make({{"balance", FieldType::kInt64, false}}).value();
    auto mine = client_->create_table("good", TableKind::kNonTransactional, schema);
    auto theirs = client_->create_table("attacked", TableKind::kTransactional, example_schema());
    if (!mine.ok() || !theirs.ok()) fail("the well-behaved client cannot create tables");
    table_.emplace(client_->plain(*mine).value());
    for (uint64_t i = 0; i < kKeys; ++i) {
      keys_.push_back(Key(random()));
      if (!table_->insert(keys_.back(), {Value::int64(static_cast<int64_t>(i))}).ok())
        fail("the well-behaved client cannot insert");
    }
    return theirs->id();
  }

  void check_records() {
    for (uint64_t i = 0; i < kKeys; ++i) {
      const auto record = table_->get(keys_[i]);
      if (!record.ok()) fail("the well-behaved client cannot read its record: " + record.status().to_string());
      if (record->int64(0) != static_cast<int64_t>(i)) fail("the record of the well-behaved client was changed");
    }
  }

  /// Sends gets one after another for the given time; returns their latencies in microseconds.
  std::vector<double> get_for(uint64_t duration_ns) {
    std::vector<double> latencies;
    const uint64_t end_ns = Env::now_ns() + duration_ns;
    for (uint64_t i = 0; Env::now_ns() < end_ns; ++i) {
      const uint64_t begin_ns = Env::now_ns();
      const auto record = table_->get(keys_[i % kKeys]);
      if (!record.ok()) fail("a get of the well-behaved client failed: " + record.status().to_string());
      latencies.push_back(static_cast<double>(Env::now_ns() - begin_ns) / 1'000);
    }
    return latencies;
  }

 private:
  std::unique_ptr<client::Client> client_;
  std::optional<client::PlainTable> table_;
  std::vector<Key> keys_;
};

double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

// ---- parts ----------------------------------------------------------------------------------------------------------

/// Opens connections that send nothing, or that stop within their greeting, and measures their memory.
void half_open(const Options& options, Victim victim, bool greeting) {
  const int pid = victim == Victim::kManager ? options.manager_pid : options.node_pid;
  const std::string& address = victim == Victim::kManager ? options.servers.manager : options.servers.node;
  const uint64_t before = rss_bytes(pid);
  const size_t files = open_files(pid);
  std::vector<std::unique_ptr<RawPeer>> peers;
  const uint64_t magic = net::kMagic;
  Buffer part(sizeof(net::Greeting) - 1);
  net::write_as(part.data(), magic);
  for (uint64_t i = 0; i < options.half_open; ++i) {
    peers.push_back(std::make_unique<RawPeer>());
    if (const Status status = peers.back()->connect(address); !status.ok())
      fail("half-open connections: " + status.to_string());
    if (greeting) peers.back()->send_raw(part);
  }
  const uint64_t deadline_ns = Env::now_ns() + net::kHandshakeTimeoutNs / 2;
  while (open_files(pid) < files + options.half_open && Env::now_ns() < deadline_ns)
    sleep_ns(1'000'000);  // poll interval
  const size_t accepted = open_files(pid) - files;
  const uint64_t after = rss_bytes(pid);
  const uint64_t each = after > before ? (after - before) / std::max<uint64_t>(accepted, 1) : 0;
  std::printf("half-open connections, %s, %s: %zu connections, %lu bytes each (at most %lu)\n",
              victim == Victim::kManager ? "commit manager" : "storage node",
              greeting ? "63 bytes of greeting" : "silent", accepted, each, kMaxHalfOpenBytes);
  peers.clear();
  const uint64_t closed_ns = Env::now_ns() + RawPeer::kDeadlineNs;
  while (open_files(pid) > files) {
    if (Env::now_ns() > closed_ns) fail("the server does not close broken connections");
    sleep_ns(1'000'000);  // poll interval
  }
  if (accepted < options.half_open * 9 / 10) fail("the server did not accept the connections");
  if (each > kMaxHalfOpenBytes) fail("a connection without a handshake uses too much memory");
}

struct FieldAt {
  size_t at, width;
  uint64_t max;
};

/// Sends every field of the greeting and of each type of frame with each of its nine boundary values.
void walk_frames(Attacker& attacker) {
  using net::FrameHeader, net::FrameType, net::Greeting;
  Buffer greeting(sizeof(Greeting));
  net::write_as(greeting.data(), Greeting{.protocol_version = net::kFramingVersion,
                                          .max_frame_bytes = net::kMaxFrameBytes,
                                          .window_frames = net::kWindowFrames,
                                          .max_message_bytes = net::kMaxMessageBytes});
  for (const FieldAt& field : {FieldAt{0, 8, net::kMagic},
                               {8, 4, 64},
                               {12, 4, net::kFramingVersion},
                               {16, 4, 3},
                               {20, 4, 20},
                               {24, 4, net::kMaxFrameBytes},
                               {28, 4, 4096},
                               {32, 8, net::kMaxMessageBytes}}) {
    for (const uint64_t value : boundary_values(field.max)) {
      attacker.send_bytes(with_number(greeting, field.at, field.width, value), false);
    }
  }
  for (uint8_t type = 1; type <= 5; ++type) {
    Buffer frame(sizeof(FrameHeader) + 24);
    const bool bare = static_cast<FrameType>(type) == FrameType::kCredits;
    if (bare) frame.resize(sizeof(FrameHeader));
    net::write_as(frame.data(),
                  FrameHeader{static_cast<uint32_t>(frame.size()), static_cast<FrameType>(type), 0, 0, 1, 1});
    if (!bare) net::write_as(frame.data() + sizeof(FrameHeader), net::PartHeader{8, 0});
    for (const FieldAt& field : {FieldAt{0, 4, net::kMaxFrameBytes},
                                 {4, 1, 5},
                                 {5, 1, 1},
                                 {6, 2, net::kWindowFrames},
                                 {8, 4, 8},
                                 {12, 4, net::kMaxGoodbyeText},
                                 {16, 4, 16},
                                 {20, 4, 1},
                                 {16, 8, net::kMaxMessageBytes},
                                 {24, 8, 8}}) {
      if (field.at >= frame.size()) continue;
      for (const uint64_t value : boundary_values(field.max)) {
        attacker.send_bytes(with_number(frame, field.at, field.width, value), true);
      }
    }
  }
}

/// Sends every byte of every example as a length or count with each of its nine boundary values. Some of these bytes
/// are lengths and counts.
void walk_messages(Attacker& attacker, uint64_t stride, testing::Random& random) {
  for (const Buffer& example : attacker.examples()) {
    std::vector<Buffer> walked;
    for (size_t at = 1; at < example.size(); ++at) {
      for (const uint64_t value : boundary_values(example.size() - at - 1)) {
        if (random.below(stride) == 0) walked.push_back(with_varint(example, at, value));
        if (random.below(stride) == 0) walked.push_back(with_number(example, at, 4, value));
      }
    }
    attacker.send_all(std::move(walked));
  }
  std::vector<Buffer> others;
  from_servers({}, [&](wire::Opcode, Buffer message) { others.push_back(std::move(message)); });
  attacker.send_all(std::move(others));
}

/// Runs both attackers at once until stop().
class Attack {
 public:
  Attack(std::vector<std::unique_ptr<Attacker>>& attackers, Attacker::Load load, uint64_t messages) {
    for (auto& attacker : attackers) {
      threads_.emplace_back([this, &attacker = *attacker, load, until = attacker->counts().messages + messages] {
        // Relaxed: a late view of the flag only delays the end.
        while (!stop_.load(std::memory_order_relaxed) && attacker.counts().messages < until &&
               attacker.counts().violation.empty()) {
          attacker.connection(load, stop_);
        }
      });
    }
  }
  ~Attack() { finish(true); }
  void finish(bool stop) {
    if (stop) stop_.store(true, std::memory_order_relaxed);  // relaxed: stop() then joins the threads
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

using Attackers = std::vector<std::unique_ptr<Attacker>>;

/// The latency of the well-behaved client beside mutated messages must be as beside well-formed ones.
void latency(const Options& options, WellBehavedClient& good, Attackers& attackers, testing::Random& random) {
  const uint64_t window_ns = options.slice_ms * 1'000'000;
  std::vector<double> alone = good.get_for(window_ns);
  TailWindows windows;
  std::array groups = {&windows.good, &windows.control, &windows.mutated};
  TailComparison verdict;
  verdict.inconclusive = true;
  for (int part = 0; part < kLatencyParts && verdict.inconclusive; ++part) {
    for (uint64_t slice = 0; slice < options.slices; ++slice) {
      // Each slice has one window of each group, in random order, so that load of the machine that follows a period
      // disturbs no group more than the others.
      for (size_t i = groups.size(); i > 1; --i) std::swap(groups[i - 1], groups[random.below(i)]);
      for (std::vector<double>* const group : groups) {
        const bool mutated = group == &windows.mutated;
        for (auto& attacker : attackers) attacker->prepare(kPrepared, mutated);
        const Attack attack(attackers, {.mutated = mutated, .per_second = kPacedPerSecond}, UINT64_MAX / 2);
        std::vector<double> latencies = good.get_for(window_ns);
        group->push_back(percentile(latencies, 0.99));
      }
    }
    verdict = compare_tail_latency(windows);
  }
  for (auto& attacker : attackers) attacker->prepare(0, true);
  std::printf(
      "get p99: %.0f us alone, %.0f and %.0f us beside well-formed messages, %.0f us beside mutated ones (medians of "
      "%zu "
      "windows); noise %.2f, ratio of mutated ones %.2f, limit %.1f times the noise\n",
      percentile(alone, 0.99), percentile(windows.good, 0.5), percentile(windows.control, 0.5),
      percentile(windows.mutated, 0.5), windows.good.size(), verdict.noise, verdict.ratio, kMaxTailRatio);
  std::fflush(stdout);
  if (verdict.degraded) fail("mutated messages slow down other clients");
}

void flood(const Options& options, WellBehavedClient& good, Attackers& attackers) {
  uint64_t rss[2] = {};
  const uint64_t share = options.messages / attackers.size();
  uint64_t done = 0;
  for (uint64_t step = 1; step <= 10; ++step) {
    {
      Attack attack(attackers, {}, share * step / 10 - done);
      attack.finish(false);
    }
    done = share * step / 10;
    AttackCounts counts;
    for (const auto& attacker : attackers) counts.add(attacker->counts());
    check(counts, "mutated messages");
    good.check_records();
    const uint64_t now[2] = {rss_bytes(options.manager_pid), rss_bytes(options.node_pid)};
    std::printf("%3lu%%: %lu messages so far, commit manager %lu MiB, storage node %lu MiB\n", step * 10,
                counts.messages, now[0] >> 20, now[1] >> 20);
    std::fflush(stdout);
    // The first tenth fills pools and caches. Growth counts from there.
    if (step == 1) std::copy(std::begin(now), std::end(now), std::begin(rss));
    if (step < 10) continue;
    for (int i = 0; i < 2; ++i) {
      if (now[i] > rss[i] + kMaxGrowthBytes)
        fail(i == 0 ? "the memory of the commit manager grows" : "the memory of the storage node grows");
    }
  }
}

int run(Options options) {
  testing::Random random(options.seed);
  std::printf("seed %lu (LOAM_SEED=%lu repeats the mutations)\n", options.seed, options.seed);
  WellBehavedClient good(options.servers.manager);
  options.servers.table = good.prepare(random);
  // Part 1: connections that stop before or within the handshake.
  for (const Victim victim : {Victim::kManager, Victim::kNode}) {
    for (const bool greeting : {false, true}) half_open(options, victim, greeting);
  }
  // Part 2: every field with each of its boundary values, at both servers.
  Attackers attackers;
  for (const Victim victim : {Victim::kManager, Victim::kNode}) {
    attackers.push_back(std::make_unique<Attacker>(options.servers, victim, random()));
    Attacker& attacker = *attackers.back();
    walk_frames(attacker);
    check(attacker.counts(), "fields of frames");
    walk_messages(attacker, options.walk_stride, random);
    check(attacker.counts(), "fields of messages");
    print(attacker.counts(),
          victim == Victim::kManager ? "boundary values, commit manager" : "boundary values, storage node");
    good.check_records();
  }
  // Part 3: the latency of other clients. Part 4: millions of mutated messages, under which the memory of the servers
  // must not grow.
  latency(options, good, attackers, random);
  flood(options, good, attackers);
  for (const auto& attacker : attackers)
    print(attacker->counts(), attacker == attackers[0] ? "commit manager" : "storage node");
  WellBehavedClient(options.servers.manager);  // a new client can connect, too
  good.check_records();
  std::printf("passed\n");
  return 0;
}

}  // namespace
}  // namespace loam::fuzz

int main(int argc, char** argv) {
  loam::fuzz::Options options;
  uint64_t incarnation = 1;
  CLI::App app("Mutated messages to a running commit manager and storage node.");
  app.add_option("--manager", options.servers.manager)->required();
  app.add_option("--node", options.servers.node)->required();
  app.add_option("--manager-pid", options.manager_pid)->required();
  app.add_option("--node-pid", options.node_pid)->required();
  app.add_option("--incarnation", incarnation, "incarnation of the storage node")->capture_default_str();
  app.add_option("--messages", options.messages)->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--half-open", options.half_open, "connections")->capture_default_str();
  app.add_option("--walk-stride", options.walk_stride, "send one boundary value of this number")->capture_default_str();
  app.add_option("--slices", options.slices,
                 "slices of the latency measurement: in each, one window beside mutated messages and two beside "
                 "well-formed ones")
      ->capture_default_str();
  app.add_option("--slice-ms", options.slice_ms)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  options.servers.incarnation = loam::Incarnation(incarnation);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  return loam::fuzz::run(options);
}
