// For tests: a log to scan, and a sink that puts a query's chunks together.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "common/schema/aggregate.h"
#include "common/schema/merge.h"
#include "common/schema/random_schema.h"
#include "storage-node/src/log/table_log.h"
#include "storage-node/src/scan/scan_scheduler.h"

namespace loam::storage {

using ResultRow = std::vector<Value>;

struct LessRow {
  bool operator()(const ResultRow& a, const ResultRow& b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [](const Value& x, const Value& y) { return x.compare(y) < 0; });
  }
};
using ResultRows = std::multiset<ResultRow, LessRow>;

/// A log without index and chains: tests lay the versions out as they like.
struct LogFixture {
  explicit LogFixture(Schema table_schema, size_t page_bytes = 16384)
      : schema(std::make_shared<const Schema>(std::move(table_schema))),
        pool(PagePool::create({.limit_bytes = 512 * page_bytes,
                               .page_size_bytes = page_bytes,
                               .huge_pages = false,
                               .prefault = false})
                 .value()),
        log(std::make_unique<TableLog>(TableId(7), LogOptions{.first_page_bytes = page_bytes}, *pool, 1)) {}

  Entry* put(uint64_t key, uint64_t from, uint64_t to, Bytes row, EntryKind kind = EntryKind::kPut,
             EntryState state = EntryState::kLive, Entry* address = nullptr) {
    const EpochGuard guard(epoch_thread);
    Entry* const entry =
        log->append(me, {kind, Key(key), Version(from), ++sequence, Link{to, address, state}, row}, Reserve::kWrite);
    LOAM_CHECK(entry != nullptr, "the test's pool is large enough");
    return entry;
  }
  Entry* put(uint64_t key, uint64_t from, uint64_t to, const ResultRow& values) {
    return put(key, from, to, testing::build_row(*schema, values));
  }
  /// Rewrites one page in about `one_in` as a column page, their tombstones left out; pages whose versions are all
  /// live, open and not above `seen_by_all` are all-visible. Nothing is put afterwards.
  void to_columns(testing::Random& random, uint64_t seen_by_all, uint64_t one_in = 2) {
    const EpochGuard guard(epoch_thread);
    std::vector<Page*> sources, targets;
    for (Page* const page : log->pages().pages()) {
      Page* const target = random.one_in(one_in) && !page->has_columns() ? column_page(*page, seen_by_all) : nullptr;
      if (target == nullptr) continue;
      sources.push_back(page);
      targets.push_back(target);
    }
    log->pages().replace(epoch_thread, sources, targets);
    rewritten.insert(rewritten.end(), sources.begin(), sources.end());
  }
  std::shared_ptr<PinnedPages> pin() {
    const EpochGuard guard(epoch_thread);
    return std::make_shared<PinnedPages>(log->pages().pin());
  }
  size_t pinned_pages() {
    const EpochGuard guard(epoch_thread);
    const auto pages = log->pages().pages();
    return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](Page* page) { return page->pinned(); }));
  }
  size_t pages() {
    const EpochGuard guard(epoch_thread);
    return log->pages().pages().size();
  }
  ScanSpec spec(Query query, Snapshot snapshot, uint32_t credits = 1'000'000) {
    return {.table = TableId(7),
            .schema = schema,
            .pages = pin(),
            .snapshot = std::move(snapshot),
            .query = std::move(query),
            .credits = credits};
  }

  /// Null: it has no rows, or they would not fit.
  Page* column_page(Page& page, uint64_t seen_by_all) {
    ColumnWidths widths(*schema);
    size_t rows = 0, texts = 0;
    page.for_each([&](const Entry& entry) {
      if (entry.tombstone()) return;
      widths.add(entry.row());
      texts += entry.row().size() - schema->fixed_size();
      ++rows;
    });
    const size_t bytes = ColumnWidths::page_overhead(*schema) + rows * widths.row_bytes() + texts;
    if (rows == 0 || bytes > log->pool().page_size()) return nullptr;
    Page* const target = log->open_target(log->pool().page_size());
    Columns& columns = Columns::lay_out(*target, widths, rows, texts);
    page.for_each([&](const Entry& entry) {
      if (entry.tombstone()) return;
      columns.append(entry.row());
      const Link link = entry.load_link();
      if (!link.live() || !link.open() || entry.valid_from > seen_by_all) target->clear_all_visible();
      const EntryImage image{EntryKind::kColumns, Key(entry.key), entry.version(), entry.sequence, link, {}};
      LOAM_CHECK(TableLog::append_to(*target, image) != nullptr, "a place for each row");
    });
    target->seal();
    return target;
  }

  std::shared_ptr<const Schema> schema;
  std::unique_ptr<PagePool> pool;
  EpochDomain epochs;
  EpochThread epoch_thread{epochs, "test"};
  ThreadContext me{epoch_thread, 0};
  std::unique_ptr<TableLog> log;
  uint64_t sequence = 0;
  std::vector<Page*> rewritten;  // their entries may still be led to; the pool outlives them
};

/// Collects one query's chunks, checks them, and merges them as a client would.
class QueryResult : public ScanSink {
 public:
  QueryResult(const Schema& schema, const Query& query)
      : merger_(schema, query, [this](const std::shared_ptr<const Chunk>& chunk) {
          for (size_t row = 0; row < chunk->rows(); ++row) {
            ResultRow values;
            for (size_t i = 0; i < chunk->view().columns(); ++i) values.push_back(chunk->view().value(i, row));
            rows.push_back(std::move(values));
          }
          return ok_status();
        }) {}

  void chunk(ScanId, Bytes bytes, ChunkMemory memory) override {
    LOAM_CHECK(parts_done < parts, "no chunk comes after the end");
    if (keep_chunks) kept.push_back(std::move(memory));
    ++chunks;
    largest = std::max(largest, bytes.size());
    auto decoded = Chunk::decode(bytes, merger_.partial_schema());
    LOAM_CHECK(decoded.ok(), "a node's chunk is well-formed");
    if (Status merged = merger_.add(*decoded); !merged.ok()) status = merged;
  }
  void progress(ScanId, const wire::ScanStatistics& so_far) override {
    LOAM_CHECK(parts_done < parts, "no progress after the end");
    told.push_back(so_far);
  }
  void done(ScanId, const Status& ended, const wire::ScanStatistics& cost) override {
    LOAM_CHECK(parts_done < parts, "a query ends once");
    ++parts_done;
    statistics = cost;
    if (!ended.ok()) status = ended;
    if (parts_done == parts && status.ok()) status = merger_.finish();
  }
  bool ended() const { return parts_done == parts; }

  size_t parts = 1;
  size_t parts_done = 0;
  bool keep_chunks = false;       // as a network that does not take them
  std::vector<ChunkMemory> kept;  // memory of those chunks
  std::vector<ResultRow> rows;
  Status status;
  wire::ScanStatistics statistics;
  std::vector<wire::ScanStatistics> told;  // progress
  size_t chunks = 0;
  size_t largest = 0;

 private:
  ResultMerger merger_;
};

/// Publication under which everything from version `base` on is visible to somebody.
inline Publication publication_at(uint64_t base, uint64_t number = 1) {
  Publication publication;
  publication.cm_epoch = 1;
  publication.number = number;
  publication.later = Snapshot(Version(base));
  publication.floor = Version(base);
  publication.young_open = true;
  return publication;
}
/// Covers every snapshot.
inline Publication any_publication() {
  Publication publication = publication_at(0);
  return publication;
}

/// What the query must give over these rows, row by row by the reference evaluation.
struct ExpectedRow {
  uint64_t key;
  uint64_t version;
  Buffer row;
};
inline std::vector<ResultRow> selected_rows(const Schema& schema, const Query& query,
                                            const std::vector<ExpectedRow>& rows) {
  std::vector<ResultRow> out;
  for (const ExpectedRow& r : rows) {
    const RowView view(schema, r.row);
    if (!matches(query.where, view)) continue;
    ResultRow& values = out.emplace_back();
    if (query.with_key) values.push_back(Value::uint64(r.key));
    if (query.with_version) values.push_back(Value::uint64(r.version));
    for (const uint16_t field : query.select) values.push_back(view.value(field));
    if (query.top_k) values.push_back(view.value(query.top_k->field));
  }
  return out;
}

/// "" or how the result differs from what it must be.
inline std::string difference(const Schema& schema, const Query& query, const std::vector<ExpectedRow>& rows,
                              const QueryResult& result) {
  if (query.aggregating()) {
    GroupTable groups(schema, query);
    for (const ExpectedRow& r : rows) {
      const RowView view(schema, r.row);
      if (matches(query.where, view)) LOAM_CHECK(groups.add(view).ok(), "few groups");
    }
    QueryResult expected(schema, query);
    ChunkBuilder builder(query.partial_schema(schema));
    for (size_t group = 0; group < groups.groups(); ++group) groups.append_partial(group, builder);
    Buffer bytes;
    LOAM_CHECK(builder.finish(bytes).ok(), "small");
    expected.chunk(0, bytes, {});
    expected.done(0, ok_status(), {});
    if (expected.status.code() != result.status.code()) return "status " + result.status.to_string();
    if (!expected.status.ok()) return "";
    const ResultRows want(expected.rows.begin(), expected.rows.end()), got(result.rows.begin(), result.rows.end());
    return want == got ? "" : "aggregates differ";
  }
  if (!result.status.ok()) return result.status.to_string();
  std::vector<ResultRow> all = selected_rows(schema, query, rows);
  const size_t size = query.top_k        ? std::min<size_t>(query.top_k->k, all.size())
                      : query.limit != 0 ? std::min<size_t>(query.limit, all.size())
                                         : all.size();
  if (result.rows.size() != size) {
    return std::to_string(result.rows.size()) + " rows instead of " + std::to_string(size);
  }
  if (query.top_k) {
    std::sort(all.begin(), all.end(), [&](const ResultRow& a, const ResultRow& b) {
      return query.top_k->descending ? a.back().compare(b.back()) > 0 : a.back().compare(b.back()) < 0;
    });
  }
  ResultRows candidates(all.begin(), all.end());
  for (size_t i = 0; i < size; ++i) {
    ResultRow row = result.rows[i];
    if (query.top_k) row.push_back(all[i].back());
    const auto found = candidates.find(row);
    if (found == candidates.end()) return "a row that is wrong, or comes twice";
    candidates.erase(found);
  }
  return "";
}

}  // namespace loam::storage
