#include "benchmarks/churn.h"

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
/// How often the commit manager publishes.
constexpr uint64_t kPublishNs = 10'000'000;
/// In step: puts for each publication, entries of a step, and steps in vain after which nothing is left to do.
constexpr size_t kPutsPerPublication = 4096;
constexpr size_t kEntriesPerStep = 4096;
constexpr int kIdleSteps = 8;
/// Puts between two looks at the clocks.
constexpr size_t kPutsPerLook = 128;

uint64_t key_of(uint64_t record) { return (record + 1) * 0x9e3779b97f4a7c15u; }

/// Cuts a run into windows by one clock.
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

/// Keeps the calling thread on one of the process's cores for a while: `second` is the other one, if there is one.
class OnCore {
 public:
  explicit OnCore(bool second) {
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
  ~OnCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;

 private:
  cpu_set_t before_{};
};

}  // namespace

/// One run.
class ChurnedNode::Session {
 public:
  Session(ChurnedNode& node, const ChurnOptions& options)
      : options_(options),
        pool_(*node.pool_),
        epochs_(node.epochs_),
        thread_(epochs_, "bench"),
        me_(thread_, 0),
        worker_thread_(epochs_, "worker"),
        worker_(worker_thread_, 1),
        compactor_(options.compaction ? storage::CompactorOptions{} : never(), pool_, epochs_),
        registry_(epochs_, pool_, compactor_, storage::Registry::Options{2, {}}),
        background_(registry_, compactor_, pool_, epochs_, share_, {.writer = 1}) {
    wire::NodeRegistered registered;
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
    const OnCore other(true);
    background_.run();  // a new thread inherits the core
  }

  ChurnResult run() {
    const OnCore own(false);
    load();
    if (options_.long_snapshot) old_ = Snapshot(Version(last_));
    publish();
    if (options_.in_step) background_.stop();
    rewrite();
    result_.refused = refused_;
    result_.most_frees = thread_.most_frees();
    check_records();
    background_.stop();
    result_.versions_at_end = count_versions();
    result_.compactor = compactor_.statistics();
    result_.inline_zeroed_bytes = pool_.statistics().inline_zeroed_bytes;
    return std::move(result_);
  }

 private:
  static storage::CompactorOptions never() {
    storage::CompactorOptions options;
    options.dead_share = 1;
    options.pressure_fill = options.max_mean_hops = std::numeric_limits<double>::infinity();
    return options;
  }
  size_t churned_keys() const { return options_.records / options_.one_of; }
  /// One of the churned records: number `i` of them.
  uint64_t churned_key(uint64_t i) const {
    uint64_t state = i ^ options_.seed;
    return key_of(i * options_.one_of + testing::Random::split(state) % options_.one_of);
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
      execute(me_, {operations.data(), keys.size()}, options_.execution);
    }
    if (!options_.in_step) give_way(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      while (operations[i].code == StatusCode::kNoSpace) {  // as a client would: again, until there is room
        ++refused_;
        LOAM_CHECK(!options_.in_step || refused_ < options_.puts, "compaction finds no room");
        if (options_.in_step) {
          publish();
          compact();
        } else {
          give_way(1);
          sched_yield();
          publish_when_due(wall_ns());
        }
        const EpochGuard guard(thread_);
        execute(me_, {&operations[i], 1}, options_.execution);
      }
      LOAM_CHECK(operations[i].code == StatusCode::kOk, "a write failed");
    }
  }

  /// As a network thread does after a batch.
  void give_way(size_t writes) {
    const uint64_t paced_ns = pace_.add(writes, pool_.fill(), share_.collecting());
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
    if (options_.time_puts) result_.took_ns.reserve(options_.puts);
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
        result_.took_ns.push_back(static_cast<uint32_t>(wall_ns() - from));
      } else {
        write(PointKind::kUpdate, {keys.data(), count});
      }
      puts += count;
      if (options_.in_step) {
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
      if (publish_when_due(now_ns) && puts > options_.puts / 2) {
        log_bytes += static_cast<double>(bytes_of_log());
        ++looks;
      }
    }
    const auto puts = static_cast<double>(options_.puts);
    const uint64_t writer_ns = thread_cpu_ns() - writer_from_ns;
    result_.paced_share = static_cast<double>(paced_ns_) / static_cast<double>(wall_ns() - start_ns);
    result_.writer_ns = static_cast<double>(writer_ns) / puts;
    // The process has no other thread.
    result_.background_ns = static_cast<double>(process_cpu_ns() - process_from_ns - writer_ns) / puts;
    result_.mean_log_bytes = looks == 0 ? 0 : log_bytes / static_cast<double>(looks);
  }

  /// For as long as there is something to do.
  void compact() {
    result_.peak_bytes = std::max(result_.peak_bytes, pool_.used_bytes());
    for (int idle = 0; idle < kIdleSteps;) {
      idle = compactor_.step(worker_, kEntriesPerStep) ? 0 : idle + 1;
      worker_thread_.collect(kEntriesPerStep);
    }
  }

  bool publish_when_due(uint64_t now_ns) {
    if (options_.in_step || now_ns - published_ns_ < kPublishNs) return false;
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
    if (old_.has_value() && options_.interval_rule) publication.old.push_back({*old_, false});
    if (old_.has_value() && !options_.interval_rule) {
      publication.floor = old_->base();
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

  /// Live entries of the churned keys in listed pages.
  size_t count_versions() {
    const EpochGuard guard(thread_);
    size_t live = 0;
    for (storage::Page* const page : table_->pages().pages()) {
      page->for_each([&](const storage::Entry& entry) { live += storage::judge(entry).alive ? 1 : 0; });
    }
    result_.churned_keys = churned_keys();
    return live - (options_.records - churned_keys());
  }

  /// Repeats the choices of rewrite(), and looks every record up.
  void check_records() {
    testing::Random random(options_.seed);
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
      for (uint64_t j = 0; j < options_.one_of; ++j) {
        const uint64_t record = i * options_.one_of + j;
        const uint64_t key = key_of(record);
        const bool rewritten = key == churned && versions[i] != 0;
        check_record(key, rewritten ? versions[i] : record / options_.batch + 1, now);
        if (old_.has_value()) check_record(key, record / options_.batch + 1, *old_);
      }
    }
  }
  void check_record(uint64_t key, uint64_t version, const Snapshot& snapshot) {
    const EpochGuard guard(thread_);
    const storage::ReadOutcome read = table_->get(me_, Key(key), snapshot);
    LOAM_CHECK(read.code == StatusCode::kOk && read.version == Version(version), "a record is missing or too old");
    const ChurnRow row = ChurnRow::of(key, version);
    LOAM_CHECK(std::ranges::equal(read.row, std::as_bytes(std::span(&row, 1))), "a wrong row");
  }

  const ChurnOptions& options_;
  PagePool& pool_;
  EpochDomain& epochs_;
  EpochThread thread_;
  storage::ThreadContext me_;
  EpochThread worker_thread_;  // in step
  storage::ThreadContext worker_;
  storage::Compactor compactor_;
  storage::Registry registry_;
  storage::CompactionShare share_{{}};  // the writing thread has a core of its own, and only waits for memory
  storage::WritePace pace_{share_.watermark()};
  storage::BackgroundThread background_;
  std::shared_ptr<storage::Table> table_;
  ChurnResult result_;
  std::optional<Snapshot> old_;
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
  LOAM_CHECK(options.batch <= kChurnBatch && options.records % options.one_of == 0, "options of a churn");
  ChurnResult result = Session(*this, options).run();
  EpochThread thread(epochs_, "settle");
  while (thread.collect(64) > 0 || epochs_.pending() > 0) {
  }
  while (pool_->zero_step(size_t{1} << 20)) {
  }
  LOAM_CHECK(pool_->used_bytes() == 0, "the node has kept memory");
  return result;
}

}  // namespace loam::bench
