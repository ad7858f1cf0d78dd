// For tests of scans: a log, and a sink that collects the chunks of a query.
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
#include "common/result/aggregate.h"
#include "common/result/merge.h"
#include "common/testing/random_schema.h"
#include "storage-node/src/log/table_log.h"
#include "storage-node/src/scan/scan_scheduler.h"

namespace loam::storage {

/// The values of one row of a result.
using ResultRow = std::vector<Value>;

/// The lexicographical order of rows.
struct LessRow {
  bool operator()(const ResultRow& a, const ResultRow& b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [](const Value& x, const Value& y) { return x.compare(y) < 0; });
  }
};
/// Rows without an order.
using ResultRows = std::multiset<ResultRow, LessRow>;

/// A log without index and chains. A test chooses the versions, lifetimes and states of the entries.
///
/// Owner: the test. Threads: one.
struct LogFixture {
  explicit LogFixture(Schema table_schema, size_t page_bytes = 16384)
      : schema(std::make_shared<const Schema>(std::move(table_schema))),
        pool(PagePool::create({.limit_bytes = 512 * page_bytes,
                               .page_size_bytes = page_bytes,
                               .huge_pages = false,
                               .prefault = false})
                 .value()),
        log(std::make_unique<TableLog>(TableId(7), LogOptions{.first_page_bytes = page_bytes}, *pool, 1)) {}

  /// Appends an entry with valid_from `from`, valid_to `to`, and the given kind and state.
  Entry* put(uint64_t key, uint64_t from, uint64_t to, Bytes row, EntryKind kind = EntryKind::kPut,
             EntryState state = EntryState::kLive, Entry* address = nullptr) {
    const EpochGuard guard(epoch_thread);
    Entry* const entry =
        log->append(me, {kind, Key(key), Version(from), ++sequence, Link{to, address, state}, row}, Reserve::kWrite);
    LOAM_CHECK(entry != nullptr, "the pool of the test is large enough");
    return entry;
  }
  Entry* put(uint64_t key, uint64_t from, uint64_t to, const ResultRow& values) {
    return put(key, from, to, testing::build_row(*schema, values));
  }
  /// Rewrites about one page in `one_in` as a column page, without its tombstones. A page is all-visible if all its
  /// versions are live, open and not above `seen_by_all`. The test appends no entry afterwards.
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
  /// Pins the present page list.
  std::shared_ptr<PinnedPages> pin() {
    const EpochGuard guard(epoch_thread);
    return std::make_shared<PinnedPages>(log->pages().pin());
  }
  /// Listed pages that some query has pinned.
  size_t pinned_pages() {
    const EpochGuard guard(epoch_thread);
    const auto pages = log->pages().pages();
    return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](Page* page) { return page->pinned(); }));
  }
  /// Listed pages.
  size_t pages() {
    const EpochGuard guard(epoch_thread);
    return log->pages().pages().size();
  }
  /// A scan of the present pages. With the default credits, the scan never waits for its client.
  ScanSpec spec(Query query, Snapshot snapshot, uint32_t credits = 1'000'000) {
    return {.table = TableId(7),
            .schema = schema,
            .pages = pin(),
            .snapshot = std::move(snapshot),
            .query = std::move(query),
            .credits = credits};
  }

  /// Rewrites a page as a column page; see to_columns(). Null if the page has no rows, or if they do not fit.
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
      LOAM_CHECK(TableLog::append_to(*target, image) != nullptr, "the column page has room for each entry");
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
  std::vector<Page*> rewritten;  // never freed, because links may still lead to their entries
};

/// Collects the chunks of one query, checks them, and merges them as a client does.
///
/// Owner: the test. Threads: one at a time. The scan may have several parts, for example one for each scan thread.
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
    LOAM_CHECK(parts_done < parts, "no chunk follows the end of a query");
    if (keep_chunks) kept.push_back(std::move(memory));
    ++chunks;
    largest = std::max(largest, bytes.size());
    auto decoded = Chunk::decode(bytes, merger_.partial_schema());
    LOAM_CHECK(decoded.ok(), "the chunks of a storage node are well-formed");
    if (Status merged = merger_.add(*decoded); !merged.ok()) status = merged;
  }
  void progress(ScanId, const wire::ScanStatistics& so_far) override {
    LOAM_CHECK(parts_done < parts, "no progress report follows the end of a query");
    progress_reports.push_back(so_far);
  }
  void done(ScanId, const Status& ended, const wire::ScanStatistics& cost) override {
    LOAM_CHECK(parts_done < parts, "each part of a query ends once");
    ++parts_done;
    statistics = cost;
    if (!ended.ok()) status = ended;
    if (parts_done == parts && status.ok()) status = merger_.finish();
  }
  /// True if all parts have ended.
  bool ended() const { return parts_done == parts; }

  size_t parts = 1;                 // parts of the scan that end separately
  size_t parts_done = 0;            // parts that have ended
  bool keep_chunks = false;         // keep the memory of chunks, as a network does that cannot send them
  std::vector<ChunkMemory> kept;    // that memory
  std::vector<ResultRow> rows;      // the merged result
  Status status;                    // the first error, or ok
  wire::ScanStatistics statistics;  // from the last part that ended
  std::vector<wire::ScanStatistics> progress_reports;
  size_t chunks = 0;   // number of chunks
  size_t largest = 0;  // bytes of the largest chunk

 private:
  ResultMerger merger_;
};

/// A publication with `base` as the floor: snapshots of base `base` and higher ones may be open.
inline Publication publication_at(uint64_t base, uint64_t number = 1) {
  Publication publication;
  publication.cm_epoch = 1;
  publication.number = number;
  publication.later = Snapshot(Version(base));
  publication.floor = Version(base);
  publication.young_open = true;
  return publication;
}
/// A publication that covers every snapshot.
inline Publication any_publication() {
  Publication publication = publication_at(0);
  return publication;
}

/// A visible record of the table: its key, its version and its row.
struct ExpectedRow {
  uint64_t key;
  uint64_t version;
  Buffer row;
};
/// The result rows of a projection over these records. With top-k, the sort value follows as an additional last value.
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

/// Compares the result of a query with the expected one over these records. Returns the difference, or "".
inline std::string difference(const Schema& schema, const Query& query, const std::vector<ExpectedRow>& rows,
                              const QueryResult& result) {
  if (query.aggregating()) {
    GroupTable groups(schema, query);
    for (const ExpectedRow& r : rows) {
      const RowView view(schema, r.row);
      if (matches(query.where, view)) LOAM_CHECK(groups.add(view).ok(), "the groups of a test fit into a group table");
    }
    QueryResult expected(schema, query);
    ChunkBuilder builder(query.partial_schema(schema));
    for (size_t group = 0; group < groups.groups(); ++group)
      LOAM_CHECK(groups.append_partial(group, builder).ok(), "the distinct values of a test are few");
    Buffer bytes;
    LOAM_CHECK(builder.finish(bytes).ok(), "the groups of a test fit into a chunk");
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
    if (found == candidates.end()) return "a row is wrong, or comes twice";
    candidates.erase(found);
  }
  return "";
}

}  // namespace loam::storage
