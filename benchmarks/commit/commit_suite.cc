// Suite commit: the commit manager's core in process. Requests are encoded before the clock starts. The measured time
// covers their decoding and execution, the encoding of replies and publications, and with a commit log the core's share
// of its work. The time of the log's own threads is not measured.
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/vfs.h>
#include <unistd.h>

#include <loam/commit/core.h>

#include "benchmarks/harness/check_ok.h"
#include "benchmarks/harness/suite.h"
#include "commit-manager/src/log/commit_log_file.h"
#include "common/command/number_options.h"
#include "common/testing/random.h"
#include "common/wire/manager.h"

namespace loam::bench {
namespace {

using commit::CommitLogFile;
using commit::CommitLogMode;
using commit::CommitLogOptions;
using commit::Core;
using commit::CoreOptions;
using commit::PeerId;
using testing::Random;

/// Keeps the newest reply, which is never an error; only counts messages to storage nodes.
class LastResponse final : public commit::Outbox {
 public:
  bool send(PeerId peer, Bytes message) override {
    bytes += message.size();
    if (peer == node) return true;
    ByteReader reader(message);
    wire::Envelope envelope;
    wire::Error error;
    if (wire::decode_envelope(reader, envelope).ok() && envelope.opcode == wire::Opcode::kError) {
      wrong_answer(wire::decode_body(reader, error).ok() ? error.status.to_string().c_str()
                                                         : "an error without a body");
    }
    answer.assign(message.begin(), message.end());
    return true;
  }
  void close(PeerId, const Status& why) override { wrong_answer(why.to_string().c_str()); }
  void log(const LogLine&, std::source_location) override {}

  const PeerId node{1'000'000};
  Buffer answer;
  uint64_t bytes = 0;
};

/// A commit log in a temporary folder, and the channel from its threads to the thread of the core.
class TemporaryCommitLog {
 public:
  explicit TemporaryCommitLog(const std::string& parent) {
    std::string folder = parent + "/loam-bench-log-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) wrong_answer("no folder for the commit log");
    folder_ = folder;
    CommitLogOptions options;
    options.folder = folder;
    options.mode = CommitLogMode::kOs;
    auto file = CommitLogFile::open(options);
    if (!file.ok()) wrong_answer(file.status().to_string().c_str());
    file_ = std::move(*file);
    file_->start(
        [this] {
          const std::scoped_lock lock(mutex_);
          progress_changed_ = true;
          changed_.notify_one();
        },
        [](const Status& why) { wrong_answer(why.to_string().c_str()); });
  }
  ~TemporaryCommitLog() {
    file_.reset();
    std::filesystem::remove_all(folder_);
  }
  TemporaryCommitLog(const TemporaryCommitLog&) = delete;
  TemporaryCommitLog& operator=(const TemporaryCommitLog&) = delete;

  CommitLogFile& file() { return *file_; }
  /// The progress of the log if it has changed since the last call. With `wait` the call waits for a change.
  std::optional<commit::CommitLogProgress> poll_progress(bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) changed_.wait(lock, [this] { return progress_changed_; });
    if (!std::exchange(progress_changed_, false)) return std::nullopt;
    lock.unlock();
    return file_->progress();
  }

 private:
  std::filesystem::path folder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool progress_changed_ = false;
  std::unique_ptr<CommitLogFile> file_;
};

/// The type of the file system of a folder.
std::string file_system_of(const std::string& folder) {
  struct statfs about{};
  if (::statfs(folder.c_str(), &about) != 0) return "unknown";
  constexpr std::pair<unsigned long, const char*> kKnown[] = {
      {0x01021994, "tmpfs"}, {0xef53, "ext4"}, {0x58465342, "xfs"}, {0x9123683e, "btrfs"}, {0x794c7630, "overlayfs"}};
  for (const auto& [magic, name] : kKnown) {
    if (static_cast<unsigned long>(about.f_type) == magic) return name;
  }
  return "file system " + std::to_string(static_cast<unsigned long>(about.f_type));
}

/// A core with sessions, a storage node, and the requests of its clients, with or without a commit log.
class Cluster {
 public:
  explicit Cluster(size_t clients, TemporaryCommitLog* log = nullptr)
      : log_(log), core_(CoreOptions(), outbox_, nullptr, {}, log == nullptr ? nullptr : &log->file()) {
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
      // The node renews its lease and acknowledges the newest publication, as a storage node does. Otherwise the core
      // would treat the node as unreachable.
      renewed_ns_ = now_ns_;
      call(outbox_.node, wire::RenewNode{});
      call(outbox_.node, wire::PublishReply{CoreOptions().epoch, core_.statistics().publications});
    }
    // The log runs in its own threads. The core takes its progress without waiting, except when the clients would
    // wait for replies.
    core_.on_timer(now_ns_);
    if (log_ == nullptr) return;
    if (const auto news = log_->poll_progress(false)) apply_progress(*news);
    while (submitted_commits_ - accepted_ > kMaxUnacknowledged || submitted_commits_ - flushed_ > kMaxUnflushed) {
      apply_progress(*log_->poll_progress(true));
    }
  }
  /// Records that `count` further commits were sent.
  void add_submitted_commits(uint64_t count) { submitted_commits_ += count; }
  void wait_until_all_are_accepted() {
    while (log_ != nullptr && accepted_ < submitted_commits_) apply_progress(*log_->poll_progress(true));
  }

  /// Decodes the newest reply, which is a BeginReply, into `begun`.
  void begun(wire::BeginReply& begun) {
    ByteReader reader(outbox_.answer);
    wire::Envelope envelope;
    if (!wire::decode_envelope(reader, envelope).ok() || envelope.opcode != wire::Opcode::kBeginReply ||
        !wire::decode_body(reader, begun).ok()) {
      wrong_answer("not a BeginReply");
    }
  }
  commit::Statistics statistics() const { return core_.statistics(); }
  void check() const { core_.check_invariants(); }

 private:
  /// Waits for replies as clients do, so that the core never runs far ahead of the commit log.
  static constexpr uint64_t kMaxUnacknowledged = 4'096;
  /// Also waits for a slow disk, before the core refuses begins because of it.
  static constexpr uint64_t kMaxUnflushed = commit::kMaxUnflushedCommits / 2;

  void apply_progress(const commit::CommitLogProgress& progress) {
    accepted_ = progress.accepted;
    flushed_ = progress.flushed;
    core_.on_log_progress(progress);
  }

  LastResponse outbox_;
  TemporaryCommitLog* const log_;
  Core core_;
  uint64_t submitted_commits_ = 0, accepted_ = 0, flushed_ = 0;  ///< commits
  uint64_t sequence_ = 0;
  uint64_t now_ns_ = 1'000'000'000;
  uint64_t renewed_ns_ = now_ns_;  ///< the node's lease
};

class CommitSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    command::add_unsigned(app, "--open", open_, {1, 1'000'000}, "open transactions of the throughput");
    command::add_unsigned(app, "--batch", batch_, {1, 1'000'000}, "begins, and completions, in one message");
    command::add_unsigned(app, "--clients", clients_, {1, 1'000'000}, "clients of the descriptors");
    command::add_unsigned(app, "--others", others_, {1, 1'000'000'000}, "transactions for which one stays open");
    app.add_option("--log-folder", log_folder_, "where the commit log lies")->capture_default_str();
  }

  void run(Run& run) override {
    throughput(run);
    descriptors(run);
  }

 private:
  static constexpr size_t kSessions = 25;
  static constexpr size_t kRounds = 20'000;

  /// The open transactions of each session.
  struct Clients {
    std::vector<std::vector<uint64_t>> open{kSessions};
    uint64_t last_id = 0;
  };
  /// Executes one client's frame: it completes a batch of its transactions and begins another batch.
  struct Round {
    PeerId peer;
    Buffer complete, begin;
  };

  std::vector<Round> make_rounds(Cluster& cluster, Clients& clients, Random& random) const {
    std::vector<Round> rounds;
    rounds.reserve(kRounds);
    for (size_t round = 0; round < kRounds; ++round) {
      const size_t client = random.below(kSessions);
      std::vector<uint64_t>& mine = clients.open[client];
      wire::Complete complete;
      for (size_t k = 0; k < batch_; ++k) {
        std::swap(mine[random.below(mine.size())], mine.back());
        complete.outcomes.push_back({TransactionId(mine.back()), true});
        mine.pop_back();
      }
      for (size_t k = 0; k < batch_; ++k) mine.push_back(++clients.last_id);
      rounds.push_back({Cluster::peer(client), cluster.encoded(complete),
                        cluster.encoded(wire::Begin{static_cast<uint32_t>(batch_), false})});
    }
    return rounds;
  }

  /// Measures pairs of begin and completion per second of CPU time of the core's thread.
  double turn(Cluster& cluster, Clients& clients, Random& random, size_t open) {
    // Step 1, not measured: encodes all requests of the turn. Ids are dense, so that the ids of later begins are
    // known.
    const std::vector<Round> rounds = make_rounds(cluster, clients, random);
    // Step 2, measured: delivers them.
    const uint64_t before = thread_cpu_ns();
    for (const Round& round : rounds) {
      const Bytes frame[] = {round.complete, round.begin};
      cluster.add_submitted_commits(batch_);
      cluster.deliver(round.peer, frame);
      cluster.advance(batch_ * 1'000);  // a million pairs a second
    }
    const uint64_t elapsed = thread_cpu_ns() - before;

    // Step 3: compares the counters and a snapshot with the requests that were sent.
    cluster.wait_until_all_are_accepted();
    wire::BeginReply begun;
    cluster.call(Cluster::peer(0), wire::Begin{0, true});
    cluster.begun(begun);
    const commit::Statistics statistics = cluster.statistics();
    if (statistics.last_transaction != clients.last_id || statistics.open != open ||
        statistics.commits != clients.last_id - open || statistics.log_accepted != statistics.commits) {
      wrong_answer("ids and counts of begins and commits");
    }
    if (begun.snapshot.open().size() > open) wrong_answer("open ids of the snapshot");
    cluster.call(Cluster::peer(0), wire::ReleaseSnapshots{{begun.snapshot_number}});
    snapshot_bytes_ = statistics.snapshot_bytes;
    return static_cast<double>(kRounds * batch_) * 1e9 / static_cast<double>(elapsed);
  }

  void throughput(Run& run) {
    TemporaryCommitLog log(log_folder_);
    Cluster with_log(kSessions, &log), without_log(kSessions);
    Random random(run.seed);
    Clients clients[2];
    Cluster* const clusters[2] = {&with_log, &without_log};
    const size_t each = std::max(batch_, open_ / kSessions);
    const size_t open = each * kSessions;
    for (size_t c = 0; c < 2; ++c) {
      for (size_t i = 0; i < kSessions; ++i) {
        clusters[c]->call(Cluster::peer(i), wire::Begin{static_cast<uint32_t>(each), false});
        for (size_t k = 0; k < each; ++k) clients[c].open[i].push_back(++clients[c].last_id);
      }
    }
    const Variant variants[] = {{"os", [&] { return turn(with_log, clients[0], random, open); }},
                                {"none", [&] { return turn(without_log, clients[1], random, open); }}};
    const std::vector<Samples> samples = alternate(run.turns, variants);
    with_log.check();
    without_log.check();
    const auto options = [&](const char* commit_log) {
      return nlohmann::ordered_json{{"commit_log", commit_log},
                                    {"open", open},
                                    {"batch", batch_},
                                    {"sessions", kSessions},
                                    {"snapshot_bytes", snapshot_bytes_},
                                    {"pairs", kRounds * batch_ * run.turns}};
    };
    auto with = options("os");
    with["medium"] = file_system_of(log_folder_);
    run.report.add("commit.ops_per_core", samples[0], "pairs/s", Better::kHigher, with);
    run.report.add("commit.ops_per_core_without_log", samples[1], "pairs/s", Better::kHigher, options("none"));
  }

  /// Measures the size of snapshots while one transaction stays open. The clients run `others_` more transactions,
  /// each client one at a time. The open id must stay in every snapshot, and the base cannot pass it.
  void descriptors(Run& run) {
    Cluster cluster(clients_ + 1);
    Random random(run.seed);
    cluster.call(Cluster::peer(clients_), wire::Begin{1, false});  // id 1 stays open until the end
    std::vector<uint64_t> open(clients_, 0);
    std::vector<uint64_t> count_of_size;
    wire::BeginReply begun;
    Buffer encoded;
    uint64_t last_id = 1;
    for (size_t i = 0; i < others_; ++i) {
      const size_t client = i < clients_ ? i : random.below(clients_);
      if (open[client] != 0) {
        cluster.call(Cluster::peer(client), wire::Complete{{{TransactionId(open[client]), true}}});
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
  std::string log_folder_ = std::filesystem::temp_directory_path();
};

LOAM_BENCH_SUITE(commit, CommitSuite, "begin and commit in the commit manager's core; size of snapshots");

}  // namespace
}  // namespace loam::bench
