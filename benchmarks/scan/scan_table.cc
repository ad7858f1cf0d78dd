#include "benchmarks/scan/scan_table.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/result/merge.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/log/columns.h"

namespace loam::bench {
namespace {

/// Bytes of a step, as in the scan thread of a storage node.
constexpr size_t kBytesPerStep = size_t{256} << 10;

std::unique_ptr<PagePool> pool_for(const Schema& schema, const ScanTable::Options& options) {
  const size_t bytes = options.rows * storage::entry_size(schema.fixed_size() + options.text_bytes);
  constexpr size_t kSlotBytes = 16;  // bytes of the index for each row, when half of its slots are used
  // The compactor makes column pages only while the pool is not under pressure (CompactorOptions::pressure_fill).
  const size_t spare = options.columns ? bytes / 2 : bytes / 5;
  auto pool = PagePool::create({.limit_bytes = bytes + spare + 4 * kSlotBytes * options.rows + (size_t{256} << 20)});
  LOAM_CHECK(pool.ok(), std::string(pool.status().message()).c_str());
  return std::move(pool).value();
}

/// A publication under which every snapshot sees the loaded rows and no later version exists.
Publication everything_visible(uint64_t number = 1) {
  Publication publication;
  publication.cm_epoch = 1;
  publication.number = number;
  publication.later = Snapshot(ScanTable::kLoaded);
  publication.floor = ScanTable::kLoaded;
  return publication;
}

}  // namespace

ScanTable::ScanTable(std::shared_ptr<const Schema> schema, const Options& options,
                     const std::function<Bytes(size_t)>& row)
    : schema_(std::move(schema)),
      rows_(options.rows),
      pool_(pool_for(*schema_, options)),
      table_(storage::Table::create(
                 {.id = kTable, .writers = 1, .index_slots = std::bit_ceil(rows_ + rows_ / 2), .schema = schema_},
                 {*pool_, versions_})
                 .value()) {
  const Snapshot nothing{Version(0)};
  for (size_t i = 0; i < rows_; ++i) {
    const Bytes bytes = row(i);
    const EpochGuard guard(thread_);
    const auto inserted = table_->insert(thread_context_, Key(i), nothing, TransactionId(kLoaded.value), bytes);
    LOAM_CHECK(inserted.code == StatusCode::kOk, "the pool is too small");
  }
  if (options.columns) compact();
  const EpochGuard guard(thread_);
  for (storage::Page* page : table_->pages().pages()) {
    pages_.push_back(
        {reinterpret_cast<const uint64_t*>(page->begin()), reinterpret_cast<const uint64_t*>(page->end())});
    bytes_ += page->used_bytes();
    column_pages_ += page->has_columns() ? 1 : 0;
  }
}

/// Runs the compactor until only the head page has rows.
void ScanTable::compact() {
  storage::CompactorOptions options;
  options.columns = storage::ColumnPolicy::kAlways;
  options.cold_publications = 1;
  storage::Compactor compactor(options, *pool_, epochs_);
  compactor.add(table_);
  const auto row_pages = [&] {
    const EpochGuard guard(thread_);
    return std::ranges::count_if(table_->pages().pages(),
                                 [](const storage::Page* page) { return !page->has_columns(); });
  };
  constexpr uint64_t kSteps = 10'000'000;
  uint64_t number = 0;
  while (row_pages() > 1 || compactor.waits()) {
    LOAM_CHECK(number < kSteps, "the compactor finds no end");
    // Pages become cold by publications, and the compactor uses a publication only after an epoch has ended. The loop
    // therefore publishes anew after some steps.
    compactor.publish(std::make_shared<const Publication>(everything_visible(++number)));
    for (int i = 0; i < 100; ++i) {
      compactor.step(thread_context_, 4096);
      thread_.collect(64);
    }
  }
}

std::shared_ptr<storage::PinnedPages> ScanTable::pin(EpochThread& thread) {
  const EpochGuard guard(thread);
  return std::make_shared<storage::PinnedPages>(table_->pages().pin());
}

void ScanTable::for_each_row(const std::function<void(const RowView&)>& f) {
  const auto pages = pin(thread_);
  for (size_t i = 0; i < pages->size(); ++i) {
    (*pages)[i]->for_each([&](const storage::Entry& entry) {
      const EpochGuard guard(thread_);
      f(RowView(*schema_, storage::row_of(entry, thread_context_)));
    });
  }
}

/// Combines the chunks of a query as a client does.
class ScanPass::Sink final : public storage::ScanSink {
 public:
  Sink(const Schema& schema, const Query& query)
      : merger_(schema, query, [this](std::shared_ptr<const Chunk> chunk) {
          result_.push_back(std::move(chunk));
          return ok_status();
        }) {}

  void chunk(storage::ScanId, Bytes bytes, storage::ChunkMemory) override {
    auto chunk = Chunk::decode(bytes, merger_.partial_schema());
    LOAM_CHECK(chunk.ok() && merger_.add(*chunk).ok(), "a malformed chunk");
  }
  void progress(storage::ScanId, const wire::ScanStatistics&) override {}
  void done(storage::ScanId, const Status& status, const wire::ScanStatistics& statistics) override {
    LOAM_CHECK(status.ok() && merger_.finish().ok(), "a scan failed");
    records_ = statistics.records;
    skipped_ = static_cast<double>(statistics.pages_skipped) / static_cast<double>(statistics.pages_total);
  }
  std::span<const std::shared_ptr<const Chunk>> result() const { return result_; }
  uint64_t records() const { return records_; }
  double skipped() const { return skipped_; }

 private:
  ResultMerger merger_;
  std::vector<std::shared_ptr<const Chunk>> result_;
  uint64_t records_ = 0;
  double skipped_ = 0;
};

ScanPass::ScanPass(ScanTable& table, std::span<const Query> queries, size_t part, size_t parts)
    : table_(table),
      thread_(table.epochs(), "scan"),
      part_(part),
      parts_(parts),
      publication_(everything_visible()),
      queries_(queries.begin(), queries.end()),
      scans_(storage::ScanScheduler::Options{.max_queries = std::max<size_t>(256, queries.size())}) {
  for (const Query& query : queries_) sinks_.push_back(std::make_unique<Sink>(*table.schema(), query));
}
ScanPass::~ScanPass() = default;

void ScanPass::join(size_t i) {
  const Status status = scans_.join(i,
                                    {.table = ScanTable::kTable,
                                     .schema = table_.schema(),
                                     .pages = table_.pin(thread_),
                                     .part = part_,
                                     .parts = parts_,
                                     .snapshot = Snapshot(ScanTable::kLoaded),
                                     .query = queries_[i],
                                     .credits = 16},
                                    *sinks_[i], Env::now_ns());
  LOAM_CHECK(status.ok(), "a query was not taken");
}

void ScanPass::join_all() {
  for (size_t i = 0; i < queries_.size(); ++i) join(i);
}

bool ScanPass::step() {
  const EpochGuard guard(thread_);
  return scans_.step(Env::now_ns(), publication_, kBytesPerStep);
}

void ScanPass::finish() {
  while (step()) {
  }
  LOAM_CHECK(scans_.queries() == 0, "a scan did not end");
}

std::span<const std::shared_ptr<const Chunk>> ScanPass::result(size_t i) const { return sinks_[i]->result(); }
uint64_t ScanPass::records(size_t i) const { return sinks_[i]->records(); }
double ScanPass::skipped(size_t i) const { return sinks_[i]->skipped(); }

}  // namespace loam::bench
