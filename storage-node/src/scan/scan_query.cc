// The state of one query: pages, credits, memory and chunks. scan_scheduler.cc walks over the pages and output.cc
// turns rows into chunks.
#include "storage-node/src/scan/scan_query.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/env.h"
#include "storage-node/src/scan/group_of_keys.h"

namespace loam::storage {
namespace {

/// Overhead of a map's node besides its value, including the overhead of the allocator.
constexpr size_t kMapNodeBytes = 48;
/// Number of copies of a query: the query itself, its compiled selection, and the copy that its output keeps.
constexpr size_t kCopiesOfQuery = 3;
/// The buffers of a chunk under construction double as they grow, and the next chunk reuses them.
constexpr size_t kGrowth = 2;
/// Upper bound on the size of a number in a chunk.
constexpr size_t kNumberBytes = 32;

/// The arrays of a computed column.
constexpr size_t kComputedBytes = 12 * 1024;

/// Whether an interval index computes the aggregates of the query.
bool fits_index(const Schema& schema, const Query& query) {
  const QueryColumns columns(schema, query.computed);
  // An interval index adds, compares and counts the keys of a column, so each value needs a key of its own.
  const auto shares_keys = [&](const Aggregate& aggregate) {
    if (aggregate.op == AggregateOp::kCountAll) return false;
    return aggregate.op > AggregateOp::kAvg || is_variable(columns.type(aggregate.field));
  };
  return !query.aggregates.empty() && std::ranges::none_of(query.aggregates, shares_keys);
}

/// Estimates the memory of a query.
size_t bytes_of(const Query& query) {
  size_t bytes = sizeof(Query) + query.select.size() * sizeof(uint16_t) + query.aggregates.size() * sizeof(Aggregate);
  for (const Computed& column : query.computed) {
    const size_t texts = is_variable(column.type) ? ExpressionEvaluator::kKeptTextBytes : 0;
    bytes += (kComputedBytes + texts) / kCopiesOfQuery;
    for (const Value& constant : column.constants) bytes += sizeof(Value) + constant_bytes(constant);
  }
  for (const Clause& clause : query.where.all) {
    bytes += sizeof(Clause) + clause.any.size() * sizeof(Predicate);
    for (const Predicate& predicate : clause.any) {
      for (const Value& operand : predicate.operands) {
        bytes += sizeof(Value) + (is_variable(operand.type()) ? operand.as_text().size() : 0);
      }
    }
  }
  return bytes;
}

}  // namespace

ScanQuery::ScanQuery(ScanId id, ScanSpec spec, BlockValues::BoundQuery bound, ScanSink& sink, uint64_t now_ns,
                     QueryMemory* memory)
    : id_(id),
      spec_(std::move(spec)),
      bound_(std::move(bound)),
      indexable_(fits_index(*spec_.schema, spec_.query)),
      sink_(sink),
      selection_(bound_.query.where),
      computes_(selection_.computes()),
      arrived_ns_(spec_.arrived_ns == 0 ? now_ns : spec_.arrived_ns),
      memory_(memory),
      chunks_in_flight_(std::make_shared<ChunkMemory::InFlightCount>(0)),
      account_(memory),
      output_(Output::make(*spec_.schema, spec_.query, bound_, account_)),
      credits_(spec_.credits),
      progress_due_ns_(now_ns + spec_.progress_interval_ns) {
  for (size_t i = spec_.part; i < spec_.pages->size(); i += spec_.parts) {
    pending_.emplace((*spec_.pages)[i]->number(), Pending{i, nullptr});
  }
  Query result = bound_.query;
  result.where = {};
  result.for_each_use([&](uint16_t column) {
    if (column >= kFirstComputed) computed_.push_back(column);
  });
  statistics_.pages_total = pending_.size();
}

Status ScanQuery::admit() {
  const size_t pages = pending_.size() * (sizeof(*pending_.begin()) + kMapNodeBytes + sizeof(Page*));
  const bool one_row = output_->accumulators() != nullptr;
  const size_t row = one_row ? output_->chunk().schema().size() * kNumberBytes : 0;
  // A query with a single result row is charged for this row in advance. So it needs no further memory, which
  // interval indexes rely on (SharedEvaluation::evaluate_ranges()).
  chunk_bytes_ = kGrowth * (output_->chunk().bytes() + row);
  const size_t without = spec_.without == nullptr ? 0 : spec_.without->size() * sizeof(Key);
  return account_.acquire(sizeof(ScanQuery) + sizeof(Output) + pages + without +
                          kCopiesOfQuery * bytes_of(spec_.query) + chunk_bytes_);
}

std::optional<KeyRange> ScanQuery::index_range(const Schema& schema, const Query& query,
                                               const CompiledSelection& selection) {
  return fits_index(schema, query) ? selection.only_range() : std::nullopt;
}

std::optional<RangeQuery> ScanQuery::range_query() {
  const std::optional<KeyRange> range = indexable_ ? selection_.only_range() : std::nullopt;
  if (!range || filters_keys()) return std::nullopt;
  if (bound_.groups != nullptr && !output_->reserve_indexed_groups(IntervalIndex::kMaxGroups)) return std::nullopt;
  return RangeQuery{*range, bound_.query.aggregates, output_->accumulators(), &statistics_.rows, this};
}

Accumulator* ScanQuery::accumulators(const BlockGroups::Keys& group) {
  if (ended_) return nullptr;
  return output_->accumulators_of(GroupOfKeys(*spec_.schema, spec_.query, group));
}

RowMask ScanQuery::failed(BlockValues& values) const {
  RowMask failed;
  for (const uint16_t column : computed_) failed |= values.failed(column);
  return failed;
}

Status ScanQuery::error(BlockValues& values, size_t row) const {
  for (const uint16_t column : computed_) {
    if (values.failed(column).test(row)) return values.error(column, row);
  }
  return ok_status();
}

bool ScanQuery::consume(uint64_t number, BlockValues& values, RowMask rows, const Entry* next) {
  // Each turn consumes rows until the chunk is full, and the next turn sends it. If the chunk cannot leave, the query
  // stops before the first row that is not consumed, so it reads each row once.
  while (rows.any()) {
    if (output_->satisfied()) return false;
    if (output_->full() && !send_chunk()) {
      // The query continues with this row when a credit arrives.
      if (!ended_) pending_.at(number).resume_at = &values.block().entry(rows.front());
      return false;
    }
    const Result<size_t> took = output_->consume(values, rows);
    if (!took.ok()) {
      end_out_of_memory(took.status());
      return false;
    }
    statistics_.rows += *took;
    if (!charge_chunk()) return false;
  }
  if (output_->satisfied()) return false;
  if (!output_->full() || send_chunk()) return true;
  // The block is consumed and its last row has filled the chunk: continue with the next block.
  if (!ended_) pending_.at(number).resume_at = next;
  return false;
}

bool ScanQuery::skip_if_excluded(uint64_t number, uint64_t now_ns) {
  const Page& page = *(*spec_.pages)[pending_.at(number).index];
  if (!page.has_columns()) return false;
  const Columns& columns = Columns::of(page);
  // The bounds of expressions take time, so they are computed only for selections of expressions.
  const bool excluded = computes_
                            ? selection_.excluded_by({columns, *spec_.schema, spec_.query.computed, bound_.columns})
                            : selection_.excluded_by(PageBounds(columns));
  if (!excluded) return false;
  start(now_ns);
  ++statistics_.pages_skipped;
  finish_page(number);
  return true;
}

void ScanQuery::start_page(uint64_t number, uint64_t now_ns) {
  start(now_ns);
  statistics_.pages += pending_.at(number).resume_at == nullptr ? 1 : 0;
}

void ScanQuery::start(uint64_t now_ns) {
  if (!std::exchange(started_, true)) statistics_.queued_ns = now_ns - std::min(now_ns, arrived_ns_);
}

uint64_t ScanQuery::report_progress(uint64_t now_ns) {
  if (spec_.progress_interval_ns == 0) return std::numeric_limits<uint64_t>::max();
  if (now_ns >= progress_due_ns_) {
    progress_due_ns_ = now_ns + spec_.progress_interval_ns;
    statistics_.elapsed_ns = now_ns - std::min(now_ns, arrived_ns_);
    sink_.progress(id_, statistics_);
  }
  return progress_due_ns_;
}

void ScanQuery::finish_page(uint64_t number) {
  const auto found = pending_.find(number);
  spec_.pages->unpin(found->second.index);
  pending_.erase(found);
}

bool ScanQuery::charge_chunk() {
  const size_t bytes = kGrowth * output_->chunk().bytes();
  if (bytes <= chunk_bytes_) return true;
  if (Status status = account_.acquire(bytes - chunk_bytes_); !status.ok()) {
    end_out_of_memory(std::move(status));
    return false;
  }
  chunk_bytes_ = bytes;
  return true;
}

bool ScanQuery::send_chunk() {
  if (credits_ == 0) return false;
  // Acquire: pairs with the release at the end of a chunk on its way. If none is left, their memory has been released,
  // so try_acquire() below can find it.
  const bool others = chunks_in_flight_->load(std::memory_order_acquire) != 0;
  const size_t drawn = output_->chunk().bytes();
  if (memory_ != nullptr && !memory_->try_acquire(drawn)) {
    account_.trim();  // the bytes that the account acquired ahead may be enough
    short_of_memory_ = !memory_->try_acquire(drawn);
  } else {
    short_of_memory_ = false;
  }
  if (short_of_memory_) {
    Env::probe("node.scan.chunk_without_memory");
    // Without another chunk on its way no memory of this query will be released, so waiting would not help.
    if (!others) end_out_of_memory(memory_->exhausted());
    return false;
  }
  // `memory` belongs to the copy that leaves. The account still pays for the buffers, which the next chunk reuses.
  ChunkMemory memory(memory_, drawn, chunks_in_flight_);
  Buffer bytes;
  bytes.reserve(drawn);
  if (Status status = output_->chunk().finish(bytes); !status.ok()) {
    end(std::move(status));
    return false;
  }
  --credits_;
  ++statistics_.chunks;
  statistics_.bytes += bytes.size();
  sink_.chunk(id_, bytes, std::move(memory));
  return true;
}

void ScanQuery::advance(uint64_t now_ns) {
  // Each turn fills the chunk as far as the consumed rows allow and sends it. The query ends when it needs no further
  // row, drain() has returned everything, and the last chunk is sent.
  while (!ended_) {
    if (!output_->full()) {
      if (more_rows()) break;
      if (!drained_ && !output_->satisfied()) {
        const Result<bool> drained = output_->drain();
        if (!drained.ok()) return end(drained.status());
        drained_ = *drained;
      }
      drained_ = drained_ || output_->satisfied();
      if (!charge_chunk()) return;
    }
    if (drained_ && output_->chunk().rows() == 0) return end(ok_status());
    if (!send_chunk()) break;
  }
  const bool blocked = !ended_ && (credits_ == 0 || short_of_memory_) && (output_->full() || !more_rows());
  if (blocked && !blocked_) blocked_since_ns_ = now_ns;
  blocked_ = blocked;
}

void ScanQuery::add_credits(uint32_t credits) {
  credits_ += credits;
  if (credits != 0) blocked_ = false;  // the client reads again, so cancel_blocked() must not end the query
}

void ScanQuery::end_out_of_memory(Status status) {
  end(std::move(status));
  // An interval index may still add to the accumulators of aggregates without groups. They take almost no memory.
  if (output_->accumulators() != nullptr) return;
  output_.reset();
  account_.release_all();
}

void ScanQuery::end(Status status) {
  if (ended_) return;
  ended_ = true;
  status_ = std::move(status);
  // Unpin at once: the compactor frees no page that a query has pinned (R18, page retirement).
  for (const auto& [number, page] : pending_) spec_.pages->unpin(page.index);
  pending_.clear();
}

void ScanQuery::report_end(uint64_t now_ns) {
  statistics_.elapsed_ns = now_ns - std::min(now_ns, arrived_ns_);
  sink_.done(id_, status_, statistics_);
}

}  // namespace loam::storage
