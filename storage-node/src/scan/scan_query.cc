#include "storage-node/src/scan/scan_query.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/env.h"

namespace loam::storage {
namespace {

/// What a map's node takes besides its value, and the allocator besides what it is asked for.
constexpr size_t kMapNodeBytes = 48;
/// The query itself, its selection compiled, and the copy that its output keeps.
constexpr size_t kCopiesOfQuery = 3;
/// The buffers of a chunk under construction double as they grow, and stay for the next chunk.
constexpr size_t kGrowth = 2;
/// What a number takes in a chunk, at most.
constexpr size_t kNumberBytes = 32;

size_t bytes_of(const Query& query) {
  size_t bytes = sizeof(Query) + query.select.size() * sizeof(uint16_t) + query.aggregates.size() * sizeof(Aggregate);
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

ScanQuery::ScanQuery(ScanId id, ScanSpec spec, ScanSink& sink, uint64_t now_ns, QueryMemory* memory)
    : id_(id),
      spec_(std::move(spec)),
      sink_(sink),
      selection_(spec_.query.where, *spec_.schema),
      arrived_ns_(spec_.arrived_ns == 0 ? now_ns : spec_.arrived_ns),
      memory_(memory),
      chunks_on_their_way_(std::make_shared<ChunkMemory::Counter>(0)),
      account_(memory),
      output_(Output::make(*spec_.schema, spec_.query, account_)),
      credits_(spec_.credits),
      progress_due_ns_(now_ns + spec_.progress_interval_ns) {
  for (size_t i = spec_.part; i < spec_.pages->size(); i += spec_.parts) {
    pending_.emplace((*spec_.pages)[i]->number(), Pending{i, nullptr});
  }
  statistics_.pages_total = pending_.size();
}

Status ScanQuery::admit() {
  const size_t pages = pending_.size() * (sizeof(*pending_.begin()) + kMapNodeBytes + sizeof(Page*));
  const bool one_row = output_->accumulators() != nullptr;
  const size_t row = one_row ? output_->chunk().schema().size() * kNumberBytes : 0;
  chunk_bytes_ = kGrowth * (output_->chunk().bytes() + row);
  return account_.take(sizeof(ScanQuery) + sizeof(Output) + pages + kCopiesOfQuery * bytes_of(spec_.query) +
                       chunk_bytes_);
}

std::optional<KeyRange> ScanQuery::index_range(const Schema& schema, const Query& query,
                                               const CompiledSelection& selection) {
  const auto of_text = [&](const Aggregate& aggregate) {
    return aggregate.op != AggregateOp::kCountAll && is_variable(schema.field(aggregate.field).type);
  };
  if (query.aggregates.empty() || !query.group_by.empty()) return std::nullopt;
  if (std::ranges::any_of(query.aggregates, of_text)) return std::nullopt;
  return selection.only_range();
}

std::optional<RangeQuery> ScanQuery::range_query() {
  const std::optional<KeyRange> range = index_range(*spec_.schema, spec_.query, selection_);
  if (!range || spec_.owns) return std::nullopt;
  return RangeQuery{*range, spec_.query.aggregates, output_->accumulators(), &statistics_.rows};
}

bool ScanQuery::take(uint64_t number, BlockValues& values, RowMask rows, const Entry* next) {
  while (rows.any()) {
    if (output_->satisfied()) return false;
    if (output_->full() && !send_chunk()) {
      // Takes it up here when a credit comes.
      if (!ended_) pending_.at(number).place = &values.block().entry(rows.front());
      return false;
    }
    const Result<size_t> took = output_->take(values, rows);
    if (!took.ok()) {
      end_without_memory(took.status());
      return false;
    }
    statistics_.rows += *took;
    if (!hold_chunk()) return false;
  }
  if (output_->satisfied()) return false;
  if (!output_->full() || send_chunk()) return true;
  if (!ended_) pending_.at(number).place = next;
  return false;
}

bool ScanQuery::skips(uint64_t number, uint64_t now_ns) {
  const Page& page = *(*spec_.pages)[pending_.at(number).index];
  if (!page.has_columns() || !selection_.excluded_by(Columns::of(page))) return false;
  start(now_ns);
  ++statistics_.pages_skipped;
  finish_page(number);
  return true;
}

void ScanQuery::start_page(uint64_t number, uint64_t now_ns) {
  start(now_ns);
  statistics_.pages += pending_.at(number).place == nullptr ? 1 : 0;
}

void ScanQuery::start(uint64_t now_ns) {
  if (!std::exchange(started_, true)) statistics_.queued_ns = now_ns - std::min(now_ns, arrived_ns_);
}

uint64_t ScanQuery::tell_progress(uint64_t now_ns) {
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

bool ScanQuery::hold_chunk() {
  const size_t bytes = kGrowth * output_->chunk().bytes();
  if (bytes <= chunk_bytes_) return true;
  if (Status status = account_.take(bytes - chunk_bytes_); !status.ok()) {
    end_without_memory(std::move(status));
    return false;
  }
  chunk_bytes_ = bytes;
  return true;
}

bool ScanQuery::send_chunk() {
  if (credits_ == 0) return false;
  // Acquire: pairs with the release of the chunk that was the last on its way; its memory can be drawn then.
  const bool others = chunks_on_their_way_->load(std::memory_order_acquire) != 0;
  const size_t drawn = output_->chunk().bytes();
  if (memory_ != nullptr && !memory_->draw(drawn)) {
    account_.trim();  // the bytes drawn ahead may be enough
    short_of_memory_ = !memory_->draw(drawn);
  } else {
    short_of_memory_ = false;
  }
  if (short_of_memory_) {
    Env::probe("node.scan.chunk_without_memory");
    if (!others) end_without_memory(memory_->exhausted());
    return false;
  }
  ChunkMemory memory(memory_, drawn, chunks_on_their_way_);
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
  while (!ended_) {
    if (!output_->full()) {
      if (more_rows()) break;
      drained_ = drained_ || output_->satisfied() || output_->drain();
      if (!hold_chunk()) return;
    }
    if (drained_ && output_->chunk().rows() == 0) return end(ok_status());
    if (!send_chunk()) break;
  }
  const bool waits = !ended_ && (credits_ == 0 || short_of_memory_) && (output_->full() || !more_rows());
  if (waits && !waits_) waits_since_ns_ = now_ns;
  waits_ = waits;
}

void ScanQuery::add_credits(uint32_t credits) {
  credits_ += credits;
  if (credits != 0) waits_ = false;  // its client reads: nobody may cancel it for having waited
}

void ScanQuery::end_without_memory(Status status) {
  end(std::move(status));
  // An interval index may still count into the accumulators of aggregates without groups, which take next to nothing.
  if (output_->accumulators() != nullptr) return;
  output_.reset();
  account_.release();
}

void ScanQuery::end(Status status) {
  if (ended_) return;
  ended_ = true;
  status_ = std::move(status);
  for (const auto& [number, page] : pending_) spec_.pages->unpin(page.index);
  pending_.clear();
}

void ScanQuery::report(uint64_t now_ns) {
  statistics_.elapsed_ns = now_ns - std::min(now_ns, arrived_ns_);
  sink_.done(id_, status_, statistics_);
}

}  // namespace loam::storage
