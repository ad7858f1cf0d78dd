// commit.*: the commit manager's core in process. Requests are encoded before the clock starts; decoding them,
// executing them, encoding the answers and the publications are what is measured.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <loam/commit/core.h>

#include "benchmarks/answers.h"
#include "benchmarks/suite.h"
#include "common/command/number_options.h"
#include "common/testing/random.h"
#include "common/wire/manager.h"

namespace loam::bench {
namespace {

using commit::Core;
using commit::CoreOptions;
using commit::PeerId;
using testing::Random;

/// Keeps the newest answer; nodes' messages are counted only.
class LastAnswer final : public commit::Outbox {
 public:
  bool send(PeerId peer, Bytes message) override {
    bytes += message.size();
    if (peer == node) return true;
    answer.assign(message.begin(), message.end());
    return true;
  }
  void close(PeerId, const Status& why) override { wrong_answer(why.to_string().c_str()); }
  void note(const std::string&, std::source_location) override {}

  const PeerId node{1'000'000};
  Buffer answer;
  uint64_t bytes = 0;
};

/// A core with sessions and a storage node, and the requests of its clients.
class Cluster {
 public:
  explicit Cluster(size_t clients) : core_(CoreOptions(), outbox_) {
    call(outbox_.node, wire::RegisterNode{"tcp://node:1", "", 1});
    for (size_t i = 0; i < clients; ++i) call(peer(i), wire::OpenSession{"bench"});
  }

  static PeerId peer(size_t client) { return PeerId(client + 1); }

  template <wire::Message M>
  Buffer encoded(const M& message) {
    Buffer bytes;
    wire::encode_message(message, ++sequence_, bytes);
    return bytes;
  }
  template <wire::Message M>
  void call(PeerId from, const M& message) {
    const Buffer bytes = encoded(message);
    const Bytes one = bytes;
    deliver(from, std::span(&one, 1));
  }
  void deliver(PeerId from, std::span<const Bytes> frame) { core_.on_messages(from, frame, now_ns_); }
  void advance(uint64_t ns) {
    now_ns_ += ns;
    if (now_ns_ - renewed_ns_ > CoreOptions().node_lease_ns / 4) {
      renewed_ns_ = now_ns_;
      call(outbox_.node, wire::RenewNode{});
    }
    core_.on_time(now_ns_);
  }

  /// The newest answer, which is a Begun, into `begun`.
  void begun(wire::Begun& begun) {
    ByteReader reader(outbox_.answer);
    wire::Envelope envelope;
    if (!wire::decode_envelope(reader, envelope).ok() || envelope.opcode != wire::Opcode::kBegun ||
        !wire::decode_body(reader, begun).ok()) {
      wrong_answer("not a Begun");
    }
  }
  commit::Statistics statistics() const { return core_.statistics(); }
  void check() const { core_.check_invariants(); }

 private:
  LastAnswer outbox_;
  Core core_;
  uint64_t sequence_ = 0;
  uint64_t now_ns_ = 1'000'000'000;
  uint64_t renewed_ns_ = now_ns_;  ///< the node's lease
};

class CommitSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    command::add_whole(app, "--open", open_, {1, 1'000'000}, "open transactions of the throughput");
    command::add_whole(app, "--batch", batch_, {1, 1'000'000}, "begins, and completions, in one message");
    command::add_whole(app, "--clients", clients_, {1, 1'000'000}, "clients of the descriptors");
    command::add_whole(app, "--others", others_, {1, 1'000'000'000}, "transactions for which one stays open");
  }

  void run(Run& run) override {
    throughput(run);
    descriptors(run);
  }

 private:
  static constexpr size_t kSessions = 25;
  static constexpr size_t kRounds = 20'000;

  /// Each round is one client's frame: it completes a batch of its transactions, reports a batch as cleared, and begins
  /// another batch.
  void throughput(Run& run) {
    Cluster cluster(kSessions);
    Random random(run.seed);
    std::vector<std::vector<uint64_t>> open(kSessions);
    uint64_t last_id = 0;
    const size_t each = std::max(batch_, open_ / kSessions);
    for (size_t i = 0; i < kSessions; ++i) {
      cluster.call(Cluster::peer(i), wire::Begin{static_cast<uint32_t>(each), false});
      for (size_t k = 0; k < each; ++k) open[i].push_back(++last_id);
    }

    const auto one_turn = [&]() -> double {
      struct Round {
        PeerId peer;
        Buffer complete, cleared, begin;
      };
      std::vector<Round> rounds;
      rounds.reserve(kRounds);
      for (size_t round = 0; round < kRounds; ++round) {
        const size_t client = random.below(kSessions);
        std::vector<uint64_t>& mine = open[client];
        wire::Complete complete;
        wire::Cleared cleared;
        for (size_t k = 0; k < batch_; ++k) {
          std::swap(mine[random.below(mine.size())], mine.back());
          complete.outcomes.push_back({TransactionId(mine.back()), true});
          cleared.ids.emplace_back(mine.back());
          mine.pop_back();
        }
        for (size_t k = 0; k < batch_; ++k) mine.push_back(++last_id);
        rounds.push_back({Cluster::peer(client), cluster.encoded(complete), cluster.encoded(cleared),
                          cluster.encoded(wire::Begin{static_cast<uint32_t>(batch_), false})});
      }
      const uint64_t before = thread_cpu_ns();
      for (const Round& round : rounds) {
        const Bytes frame[] = {round.complete, round.cleared, round.begin};
        cluster.deliver(round.peer, frame);
        cluster.advance(batch_ * 1'000);  // a million pairs a second
      }
      const uint64_t elapsed = thread_cpu_ns() - before;

      wire::Begun begun;
      cluster.begun(begun);
      const commit::Statistics statistics = cluster.statistics();
      if (begun.first_id.value + batch_ - 1 != last_id || statistics.last_transaction != last_id ||
          statistics.open != each * kSessions || statistics.commits != last_id - statistics.open) {
        wrong_answer("ids and counts of begins and commits");
      }
      if (begun.snapshot.open().size() + batch_ > each * kSessions) wrong_answer("open ids of the snapshot");
      snapshot_bytes_ = statistics.snapshot_bytes;
      return static_cast<double>(kRounds * batch_) * 1e9 / static_cast<double>(elapsed);
    };
    const Variant variant{"core", one_turn};
    const std::vector<Samples> samples = alternate(run.turns, std::span(&variant, 1));
    cluster.check();
    run.report.add("commit.ops_per_core", samples[0], "pairs/s", Better::kHigher,
                   {{"open", each * kSessions},
                    {"batch", batch_},
                    {"sessions", kSessions},
                    {"snapshot_bytes", snapshot_bytes_},
                    {"pairs", kRounds * batch_ * run.turns}});
  }

  /// One transaction stays open while the clients, one transaction each, run `others_` more.
  void descriptors(Run& run) {
    Cluster cluster(clients_ + 1);
    Random random(run.seed);
    cluster.call(Cluster::peer(clients_), wire::Begin{1, false});  // id 1, open for good
    std::vector<uint64_t> open(clients_, 0);
    std::vector<uint64_t> count_of_size;
    wire::Begun begun;
    Buffer encoded;
    uint64_t last_id = 1;
    for (size_t i = 0; i < others_; ++i) {
      const size_t client = i < clients_ ? i : random.below(clients_);
      if (open[client] != 0) {
        cluster.call(Cluster::peer(client), wire::Complete{{{TransactionId(open[client]), true}}});
        cluster.call(Cluster::peer(client), wire::Cleared{{TransactionId(open[client])}});
      }
      cluster.call(Cluster::peer(client), wire::Begin{1, false});
      cluster.begun(begun);
      if (begun.first_id.value != ++last_id) wrong_answer("ids are dense");
      if (begun.snapshot.visible(Version(1))) wrong_answer("the first transaction is open");
      open[client] = last_id;
      encoded.clear();
      ByteWriter writer(encoded);
      begun.snapshot.encode(writer);
      if (count_of_size.size() <= encoded.size()) count_of_size.resize(encoded.size() + 1);
      ++count_of_size[encoded.size()];
    }
    cluster.check();
    Figure figure;
    figure.name = "commit.descriptor_bytes_p99";
    figure.value = quantile(count_of_size, 0.99);
    figure.unit = "bytes";
    figure.better = Better::kLower;
    figure.n = others_;
    figure.options = {{"clients", clients_},
                      {"others", others_},
                      {"p50", quantile(count_of_size, 0.5)},
                      {"max", count_of_size.size() - 1},
                      {"thesis_bitmap_bytes", others_ / 8}};
    run.report.add(figure);
  }

  double quantile(const std::vector<uint64_t>& count_of_size, double q) const {
    uint64_t left = static_cast<uint64_t>(q * static_cast<double>(others_));
    for (size_t size = 0; size < count_of_size.size(); ++size) {
      if (count_of_size[size] > left) return static_cast<double>(size);
      left -= count_of_size[size];
    }
    return static_cast<double>(count_of_size.size());
  }

  size_t open_ = 1'000;
  size_t batch_ = 32;
  size_t clients_ = 64;
  size_t others_ = 10'000'000;
  uint64_t snapshot_bytes_ = 0;
};

LOAM_BENCH_SUITE(commit, CommitSuite, "begin and commit in the commit manager's core; size of snapshots");

}  // namespace
}  // namespace loam::bench
