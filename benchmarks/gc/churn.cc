// One run of churn.h: loads a table, rewrites a part of its records, and checks them. The run assembles the parts of
// a storage node without its network, so that the figures contain nothing but memory management.
#include "benchmarks/gc/churn.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include <pthread.h>
#include <sched.h>

#include "common/base/assert.h"
#include "common/base/cpu_clock.h"
#include "common/wire/catalog.h"
#include "storage-node/src/log/entry.h"
#include "storage-node/src/log/page.h"

namespace loam::bench {

using storage::PointKind;
using storage::PointOperation;

namespace {

constexpr TableId kTable{1};
constexpr uint64_t kWindowNs = 100'000'000;
/// Interval between two publications of the commit manager.
constexpr uint64_t kPublishNs = 10'000'000;
/// Limits of synchronous compaction: puts between publications, entries of one step, and the number of idle steps in
/// a row after which no work is left. One idle step is not enough, because work may wait for the end of an epoch.
constexpr size_t kPutsPerPublication = 4096;
constexpr size_t kEntriesPerStep = 4096;
constexpr int kIdleSteps = 8;
/// Number of puts between two reads of the clocks.
constexpr size_t kPutsPerLook = 128;

uint64_t key_of(uint64_t record) { return (record + 1) * 0x9e3779b97f4a7c15u; }

/// Divides a run into windows by one clock.
class Windows {
 public:
  Windows(std::vector<Window>& out, uint64_t now_ns) : out_(out), from_ns_(now_ns) {}
  void look(uint64_t now_ns, double at_s, size_t puts) {
    if (now_ns - from_ns_ < kWindowNs) return;
    out_.push_back({at_s, static_cast<double>(puts - from_puts_) * 1e9 / static_cast<double>(now_ns - from_ns_)});
    from_ns_ = now_ns;
    from_puts_ = puts;
  }

 private:
  std::vector<Window>& out_;
  uint64_t from_ns_;
  size_t from_puts_ = 0;
};

/// Pins the calling thread to one of the process's cores until destruction; `second` is the other core if there is one.
class ScopedCoreAffinity {
 public:
  explicit ScopedCoreAffinity(bool second) {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    int left = second && CPU_COUNT(&before_) > 1 ? 1 : 0;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &before_) || left-- > 0) continue;
      CPU_SET(core, &one);
      break;
    }
    sched_setaffinity(0, sizeof one, &one);
  }
  ~ScopedCoreAffinity() { sched_setaffinity(0, sizeof before_, &before_); }
  ScopedCoreAffinity(const ScopedCoreAffinity&) = delete;
  ScopedCoreAffinity& operator=(const ScopedCoreAffinity&) = delete;

 private:
  cpu_set_t before_{};
};

}  // namespace

/// One run.
class ChurnedNode::Trial {
 public:
  Trial(ChurnedNode& node, const ChurnOptions& options)
      : options_(options),
        pool_(*node.pool_),
        epochs_(node.epochs_),
        thread_(epochs_, "bench"),
        thread_context_(thread_, 0),
        worker_thread_(epochs_, "worker"),
        worker_(worker_thread_, 1),
        compactor_(options.compaction ? storage::CompactorOptions{} : compaction_disabled(), pool_, epochs_),
        registry_(epochs_, pool_, compactor_, storage::Registry::Options{2, {}}),
        background_(registry_, compactor_, pool_, epochs_, share_, {.writer = 1}) {
    wire::RegisterNodeReply registered;
    registered.node = NodeId(1);
    registered.incarnation = Incarnation(1);
    registered.catalog.version = 1;
    registered.catalog.tables = {
        {kTable, "churned", TableKind::kTransactional, Schema::make({{"row", FieldType::kBlob, false}}).value()}};
    registered.catalog.shards.version = 1;
    registered.catalog.shards.owners.assign(wire::kVirtualShards, NodeId(1));
    const Status entered = registry_.enter_service(thread_, registered);
    LOAM_CHECK(entered.ok(), std::string(entered.message()).c_str());
    const EpochGuard guard(thread_);
    table_ = (*registry_.view().find(kTable))->table;
    const ScopedCoreAffinity other(true);
    background_.run();  // the new thread inherits the affinity
  }

  ChurnResult run() {
    const ScopedCoreAffinity own(false);
    // Phase 1: loads the records, and takes the snapshot that stays open. Phase 2: rewrites. Phase 3: checks.
    load();
    if (options_.long_snapshot) long_snapshot_ = Snapshot(Version(last_));
    publish();
    if (options_.synchronous_compaction) background_.stop();
    rewrite();
    result_.refused = refused_;
    result_.max_frees = thread_.max_frees();
    check_records();
    background_.stop();
    // The background thread has ended, so that no entry moves during the count.
    result_.versions_at_end = count_versions();
    result_.compactor = compactor_.statistics();
    result_.inline_zeroed_bytes = pool_.statistics().inline_zeroed_bytes;
    return std::move(result_);
  }

 private:
  static storage::CompactorOptions compaction_disabled() {
    storage::CompactorOptions options;
    options.dead_share = 1;
    options.pressure_fill = options.max_mean_hops = std::numeric_limits<double>::infinity();
    return options;
  }
  size_t churned_keys() const { return options_.records / options_.key_stride; }
  /// The key of rewritten record number `i`.
  uint64_t churned_key(uint64_t i) const {
    uint64_t state = i ^ options_.seed;
    return key_of(i * options_.key_stride + testing::Random::split(state) % options_.key_stride);
  }

  void load() {
    std::vector<uint64_t> keys(options_.batch);
    for (size_t record = 0; record < options_.records;) {
      const size_t count = std::min(keys.size(), options_.records - record);
      for (size_t i = 0; i < count; ++i) keys[i] = key_of(record++);
      write(PointKind::kInsert, {keys.data(), count});
    }
  }

  /// One transaction.
  void write(PointKind kind, std::span<const uint64_t> keys) {
    // Transactions run one after another. The snapshot of each sees all previous ones, so no write conflicts.
    const Snapshot snapshot{Version(last_)};
    ++last_;
    std::array<ChurnRow, kChurnBatch> rows;
    std::array<PointOperation, kChurnBatch> operations;
    for (size_t i = 0; i < keys.size(); ++i) {
      rows[i] = ChurnRow::of(keys[i], last_);
      PointOperation& operation = operations[i];
      operation.kind = kind;
      operation.table = table_.get();
      operation.key = Key(keys[i]);
      operation.snapshot = &snapshot;
      operation.transaction = TransactionId(last_);
      operation.row = std::as_bytes(std::span(&rows[i], 1));
    }
    {
      const EpochGuard guard(thread_);
      execute(thread_context_, {operations.data(), keys.size()}, options_.execution);
    }
    if (!options_.synchronous_compaction) throttle_writes(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      while (operations[i].code == StatusCode::kNoSpace) {  // repeat until there is memory, as a client does
        ++refused_;
        LOAM_CHECK(!options_.synchronous_compaction || refused_ < options_.puts, "compaction finds no room");
        // The writer itself makes room: a publication releases the versions that no snapshot sees.
        if (options_.synchronous_compaction) {
          publish();
          compact();
        } else {
          throttle_writes(1);
          sched_yield();
          publish_when_due(wall_ns());
        }
        const EpochGuard guard(thread_);
        execute(thread_context_, {&operations[i], 1}, options_.execution);
      }
      LOAM_CHECK(operations[i].code == StatusCode::kOk, "a write failed");
    }
  }

  /// Does the work of a network thread after a batch.
  void throttle_writes(size_t writes) {
    const uint64_t paced_ns = write_throttle_.delay_ns(writes, pool_.fill(), share_.collecting());
    if (paced_ns == 0) return;
    paced_ns_ += paced_ns;
    sleep_ns(paced_ns);
  }

  void rewrite() {
    testing::Random random(options_.seed);
    const uint64_t start_ns = wall_ns();
    paced_ns_ = 0;
    const uint64_t writer_from_ns = thread_cpu_ns();
    const uint64_t process_from_ns = process_cpu_ns();
    Windows by_cpu(result_.cpu_windows, writer_from_ns);
    Windows by_wall(result_.wall_windows, start_ns);
    if (options_.time_puts) result_.put_latencies_ns.reserve(options_.puts);
    std::vector<uint64_t> keys(options_.batch);
    double log_bytes = 0;
    size_t looks = 0;
    size_t next_look = kPutsPerLook;
    for (size_t puts = 0; puts < options_.puts;) {
      const size_t count = std::min(keys.size(), options_.puts - puts);
      for (size_t i = 0; i < count; ++i) keys[i] = churned_key(random.below(churned_keys()));
      if (options_.time_puts) {
        const uint64_t from = wall_ns();
        write(PointKind::kUpdate, {keys.data(), count});
        result_.put_latencies_ns.push_back(static_cast<uint32_t>(wall_ns() - from));
      } else {
        write(PointKind::kUpdate, {keys.data(), count});
      }
      puts += count;
      if (options_.synchronous_compaction) {
        if (puts % kPutsPerPublication < options_.batch) publish();
        compact();
      }
      if (puts < next_look) continue;
      next_look = puts + kPutsPerLook;
      const uint64_t now_ns = wall_ns();
      const double at_s = static_cast<double>(now_ns - start_ns) / 1e9;
      by_cpu.look(thread_cpu_ns(), at_s, puts);
      by_wall.look(now_ns, at_s, puts);
      result_.peak_bytes = std::max(result_.peak_bytes, pool_.used_bytes());
      // The first half of the run does not count, because the log begins without garbage.
      if (publish_when_due(now_ns) && puts > options_.puts / 2) {
        log_bytes += static_cast<double>(bytes_of_log());
        ++looks;
      }
    }
    const auto puts = static_cast<double>(options_.puts);
    const uint64_t writer_ns = thread_cpu_ns() - writer_from_ns;
    result_.throttled_share = static_cast<double>(paced_ns_) / static_cast<double>(wall_ns() - start_ns);
    result_.writer_ns = static_cast<double>(writer_ns) / puts;
    // The process has only the writer and the background thread.
    result_.background_ns = static_cast<double>(process_cpu_ns() - process_from_ns - writer_ns) / puts;
    result_.mean_log_bytes = looks == 0 ? 0 : log_bytes / static_cast<double>(looks);
  }

  /// Takes steps of compaction until there is no work left.
  void compact() {
    result_.peak_bytes = std::max(result_.peak_bytes, pool_.used_bytes());
    for (int idle = 0; idle < kIdleSteps;) {
      idle = compactor_.step(worker_, kEntriesPerStep) ? 0 : idle + 1;
      worker_thread_.collect(kEntriesPerStep);
    }
  }

  bool publish_when_due(uint64_t now_ns) {
    if (options_.synchronous_compaction || now_ns - published_ns_ < kPublishNs) return false;
    publish();
    published_ns_ = now_ns;
    return true;
  }
  void publish() {
    Publication publication;
    publication.cm_epoch = 1;
    publication.number = ++publications_;
    publication.later = Snapshot(Version(last_));
    publication.floor = Version(last_);
    // R20, garbage and tombstones: a listed snapshot lets compaction drop versions between two snapshots. A floor
    // alone keeps every version above it.
    if (long_snapshot_.has_value() && options_.interval_rule) publication.old.push_back({*long_snapshot_, false});
    if (long_snapshot_.has_value() && !options_.interval_rule) {
      publication.floor = long_snapshot_->base();
      publication.young_open = true;
    }
    LOAM_CHECK(publication.check().ok(), "a publication is wrong");
    registry_.publish(thread_, std::move(publication));
  }

  size_t bytes_of_log() {
    const EpochGuard guard(thread_);
    size_t bytes = 0;
    for (const storage::Page* const page : table_->pages().pages()) bytes += page->filled_bytes();
    return bytes;
  }

  /// Counts the live entries of the rewritten keys in listed pages.
  size_t count_versions() {
    const EpochGuard guard(thread_);
    size_t live = 0;
    for (storage::Page* const page : table_->pages().pages()) {
      page->for_each([&](const storage::Entry& entry) { live += storage::lifetime_of(entry).alive ? 1 : 0; });
    }
    result_.churned_keys = churned_keys();
    return live - (options_.records - churned_keys());
  }

  /// Repeats the random choices of rewrite() and checks every record.
  void check_records() {
    testing::Random random(options_.seed);
    // A version is the number of its transaction. The load used one transaction for each batch.
    const uint64_t loaded = (options_.records + options_.batch - 1) / options_.batch;
    std::vector<uint64_t> versions(churned_keys());
    uint64_t version = loaded;
    for (size_t puts = 0; puts < options_.puts;) {
      const size_t count = std::min(options_.batch, options_.puts - puts);
      ++version;
      for (size_t i = 0; i < count; ++i) versions[random.below(churned_keys())] = version;
      puts += count;
    }
    LOAM_CHECK(version == last_, "transactions are missing");
    const Snapshot now{Version(last_)};
    for (uint64_t i = 0; i < churned_keys(); ++i) {
      const uint64_t churned = churned_key(i);
      for (uint64_t j = 0; j < options_.key_stride; ++j) {
        const uint64_t record = i * options_.key_stride + j;
        const uint64_t key = key_of(record);
        const bool rewritten = key == churned && versions[i] != 0;
        check_record(key, rewritten ? versions[i] : record / options_.batch + 1, now);
        if (long_snapshot_.has_value()) check_record(key, record / options_.batch + 1, *long_snapshot_);
      }
    }
  }
  void check_record(uint64_t key, uint64_t version, const Snapshot& snapshot) {
    const EpochGuard guard(thread_);
    const storage::ReadOutcome read = table_->get(thread_context_, Key(key), snapshot);
    LOAM_CHECK(read.code == StatusCode::kOk && read.version == Version(version), "a record is missing or too old");
    const ChurnRow row = ChurnRow::of(key, version);
    LOAM_CHECK(std::ranges::equal(read.row, std::as_bytes(std::span(&row, 1))), "a wrong row");
  }

  const ChurnOptions& options_;
  PagePool& pool_;
  EpochDomain& epochs_;
  EpochThread thread_;
  storage::ThreadContext thread_context_;
  EpochThread worker_thread_;  // for synchronous compaction
  storage::ThreadContext worker_;
  storage::Compactor compactor_;
  storage::Registry registry_;
  storage::CompactionShare share_{{}};  // idle: the writing thread has a core of its own
  storage::WriteThrottle write_throttle_{share_.watermark()};
  storage::BackgroundThread background_;
  std::shared_ptr<storage::Table> table_;
  ChurnResult result_;
  std::optional<Snapshot> long_snapshot_;
  uint64_t last_ = 0;  // transaction
  uint64_t publications_ = 0;
  uint64_t published_ns_ = 0;
  size_t refused_ = 0;
  uint64_t paced_ns_ = 0;
};

ChurnedNode::ChurnedNode(size_t memory_bytes, size_t page_bytes, bool huge_pages)
    : pool_([=] {
        auto pool =
            PagePool::create({.limit_bytes = memory_bytes, .page_size_bytes = page_bytes, .huge_pages = huge_pages});
        LOAM_CHECK(pool.ok(), std::string(pool.status().message()).c_str());
        return std::move(pool).value();
      }()) {}

ChurnedNode::~ChurnedNode() = default;

ChurnResult ChurnedNode::run(const ChurnOptions& options) {
  LOAM_CHECK(options.batch <= kChurnBatch && options.records % options.key_stride == 0, "options of a churn");
  ChurnResult result = Trial(*this, options).run();
  // The next run begins with an empty and zeroed pool, so it pays for no garbage of this run.
  EpochThread thread(epochs_, "settle");
  while (thread.collect(64) > 0 || epochs_.pending() > 0) {
  }
  while (pool_->zero_step(size_t{1} << 20)) {
  }
  LOAM_CHECK(pool_->used_bytes() == 0, "the node has kept memory");
  return result;
}

}  // namespace loam::bench
