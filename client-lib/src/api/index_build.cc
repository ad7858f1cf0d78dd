// The four steps of an index build (index_build.h). index.cc calls run(); bdtree/src/entries has the rules for the
// entries.
#include "client-lib/src/api/index_build.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <loam/bdtree/index_entries.h>

#include "client-lib/src/api/scan_impl.h"
#include "client-lib/src/driver/cancel_scope_status.h"
#include "client-lib/src/driver/point_reads.h"
#include "common/base/env.h"
#include "common/base/exception_status.h"
#include "common/fiber/cancel_scope.h"
#include "common/fiber/fiber_group.h"
#include "common/schema/row.h"

namespace loam::client {
namespace {

/// Interval between checks whether older transactions have ended, and between retries at an undecided transaction.
constexpr uint64_t kBuildPollIntervalNs = 5'000'000;
/// Most retries at an undecided transaction. It ends, or its session's lease ends, long before.
constexpr uint32_t kMaxBuildPolls = 60'000;
/// Records that are entered in parallel. Their changes of one leaf travel together.
constexpr size_t kFibers = 64;

}  // namespace

Status IndexBuild::run() {
  LOAM_ASSIGN_OR_RETURN(keys_, client_.trees().keys(index_));
  // Step 1.
  LOAM_RETURN_IF_ERROR(wait_for_older_transactions());
  // Step 2.
  LOAM_ASSIGN_OR_RETURN(const std::shared_ptr<RegisteredSnapshot> registered, durable_snapshot());
  session_ = registered->session();
  // Step 3. open() creates the tree, also if the table is empty.
  LOAM_RETURN_IF_ERROR(client_.trees().open(session_, index_.id()).status());
  LOAM_RETURN_IF_ERROR(scan(registered));
  // Step 4.
  const auto finished = client_.engine().change_catalog<wire::FinishIndexReply>(wire::FinishIndex{index_.id()});
  return finished.status();
}

Status IndexBuild::wait_for_older_transactions() {
  Engine& engine = client_.engine();
  LOAM_ASSIGN_OR_RETURN(const Engine::OpenTransaction mark, engine.begin(BeginKind::kReadWrite));
  // Only the id matters. While it is open, no base of a snapshot can reach it, so the client completes it at once.
  mark.session->manager().release_id(mark.answer.id);
  engine.admission().release();
  for (;;) {
    LOAM_RETURN_IF_ERROR(report_progress(0, 0));
    LOAM_ASSIGN_OR_RETURN(const std::shared_ptr<RegisteredSnapshot> registered, engine.register_snapshot());
    if (registered->snapshot()->base().value >= mark.answer.id.value) return ok_status();
    Env::probe("client.index.waited_for_older");
    engine.worker().scheduler().sleep_for(kBuildPollIntervalNs);
  }
}

Result<std::shared_ptr<RegisteredSnapshot>> IndexBuild::durable_snapshot() {
  Engine& engine = client_.engine();
  LOAM_ASSIGN_OR_RETURN(std::shared_ptr<RegisteredSnapshot> taken, engine.register_snapshot());
  for (Version durable = taken->begin_result().durable; durable < taken->snapshot()->high();) {
    Env::probe("client.index.waited_for_the_log");
    engine.worker().scheduler().sleep_for(kBuildPollIntervalNs);
    if (fiber::CancelScope::ended()) return cancel_scope_status();
    LOAM_ASSIGN_OR_RETURN(const std::shared_ptr<RegisteredSnapshot> later, engine.register_snapshot());
    if (later->session() != taken->session()) {
      return Status(StatusCode::kFenced, "the session of the build of index " + index_.name() + " has ended");
    }
    durable = later->begin_result().durable;
  }
  return taken;
}

Status IndexBuild::report_progress(uint64_t done, uint64_t total) {
  if (!options_.on_progress) return ok_status();
  try {
    options_.on_progress(done, total);
  } catch (...) {
    thrown_ = std::current_exception();
  }
  return thrown_ ? Status(StatusCode::kCancelled, "on_progress threw an exception") : ok_status();
}

Status IndexBuild::scan(const std::shared_ptr<RegisteredSnapshot>& registered) {
  Engine& engine = client_.engine();
  const auto start = [&](const Query& query) {
    return ScanStream::Impl::start(engine, session_, index_.table(), query, {}, registered->snapshot(), registered);
  };
  // The first query counts the records, for the progress reports only.
  Query count;
  count.aggregates = {{AggregateOp::kCountAll, 0}};
  LOAM_ASSIGN_OR_RETURN(ScanStream counted, start(count));
  LOAM_ASSIGN_OR_RETURN(const auto totals, counted.collect());
  total_ = static_cast<uint64_t>(totals.at(0)->view().get<int64_t>(0, 0));
  Query all;
  all.with_key = true;
  for (const Index::Part& part : index_.parts()) all.select.push_back(part.field);
  LOAM_ASSIGN_OR_RETURN(ScanStream records, start(all));
  for (;;) {
    LOAM_ASSIGN_OR_RETURN(const std::shared_ptr<const Chunk> chunk, records.next());
    if (chunk == nullptr) return ok_status();
    const ChunkView& view = chunk->view();
    Status failed;
    // kFibers fibers enter the rows of a chunk, each every kFibers-th row. So changes of many leaves are under
    // way at the same time.
    const auto enter_some = [&](size_t first) {
      for (size_t row = first; row < view.rows() && failed.ok(); row += kFibers) {
        Status entered = index_row(view, row, *registered->snapshot());
        if (!entered.ok() && failed.ok()) failed = std::move(entered);
        ++done_;
      }
    };
    fiber::FiberGroup others(engine.worker().scheduler());
    // These fibers have no limits: a limit that ended a change would leave the changes combined with it in doubt.
    for (size_t first = 0; first < std::min(kFibers, view.rows()) && failed.ok(); ++first) {
      if (others.spawn([&enter_some, first] { enter_some(first); })) continue;
      failed = {StatusCode::kOverloaded, "the client has no free fiber for the build of an index"};
    }
    others.wait();
    LOAM_RETURN_IF_ERROR(failed);
    if (fiber::CancelScope::ended()) return cancel_scope_status();
    LOAM_RETURN_IF_ERROR(report_progress(done_, std::max(done_, total_)));
  }
}

Status IndexBuild::index_row(const ChunkView& view, size_t row, const Snapshot& snapshot) {
  try {
    Env::pause_point("client.index.build_enters");
    const Schema& schema = keys_->fields().schema();
    RowBuilder builder(schema);
    for (size_t i = 0; i < schema.size(); ++i) LOAM_RETURN_IF_ERROR(builder.set(i, view.value(i + 1, row)));
    LOAM_ASSIGN_OR_RETURN(const Bytes bytes, builder.finish());
    const Key record(view.get<uint64_t>(0, row));
    Status entered = insert_entry(record, RowView(schema, bytes), snapshot);
    // kConflict of the tree itself, at a leaf that other writers keep changing, is retried, too.
    return entered.code() == StatusCode::kConflict ? retry_entry(record) : std::move(entered);
  } catch (...) {  // memory ran out
    return status_from_exception("the entry of a record");
  }
}

Status IndexBuild::insert_entry(Key record, const RowView& row, const Snapshot& snapshot) {
  LOAM_ASSIGN_OR_RETURN(const IndexKeys::TreeKey key, keys_->key_of(row, record));
  LOAM_ASSIGN_OR_RETURN(const std::shared_ptr<IndexTree> tree, client_.trees().open(session_, index_.id()));
  const std::optional<Key> named = key.shared ? std::nullopt : std::optional(record);
  return tree->tree->update(key.bytes, [&](auto payload) -> Result<bdtree::Edit> {
    LOAM_ASSIGN_OR_RETURN(bdtree::IndexEntries entries, bdtree::IndexEntries::decode(payload, named));
    const std::vector<bdtree::IndexEntry> before = entries.entries();
    LOAM_RETURN_IF_ERROR(entries.backfill(record, snapshot, key.shared));
    return entries.entries() == before ? bdtree::Edit::keep() : bdtree::Edit::put(entries.encode());
  });
}

Status IndexBuild::retry_entry(Key record) {
  Engine& engine = client_.engine();
  for (uint32_t look = 0; look < kMaxBuildPolls; ++look) {
    Env::probe("client.index.build_met_undecided");
    engine.worker().scheduler().sleep_for(kBuildPollIntervalNs);
    // A newer snapshot shows how the undecided transaction has ended, and the record's present value. It must be
    // durable, too (step 2).
    LOAM_ASSIGN_OR_RETURN(const std::shared_ptr<RegisteredSnapshot> registered, durable_snapshot());
    auto reads = std::make_shared<PointReads>(engine, registered->session(), keys_->fields(), registered->snapshot());
    reads->start(std::span(&record, 1));
    reads->wait();
    const Result<Record> now = reads->take_result(0);
    // A record that was removed meanwhile needs no entry.
    if (now.code() == StatusCode::kNotFound) return ok_status();
    if (!now.ok()) return now.status();
    Status entered = insert_entry(record, now->view(), *registered->snapshot());
    if (entered.code() != StatusCode::kConflict) return entered;
  }
  return {StatusCode::kTimeout, "index " + index_.name() + ": a transaction was not decided for too long"};
}

}  // namespace loam::client
