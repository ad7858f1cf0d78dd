#include "storage-node/src/scan/scan_query.h"

#include <array>
#include <numeric>
#include <utility>

namespace loam::storage {
namespace {

constexpr RowNumbers kAllRows = [] {
  RowNumbers rows{};
  std::iota(rows.begin(), rows.end(), uint16_t{0});
  return rows;
}();

}  // namespace

ScanQuery::ScanQuery(ScanId id, ScanSpec spec, ScanSink& sink, uint64_t now_ns)
    : id_(id),
      spec_(std::move(spec)),
      sink_(sink),
      selection_(spec_.query.where, *spec_.schema),
      started_ns_(now_ns),
      output_(Output::make(*spec_.schema, spec_.query)),
      credits_(spec_.credits) {
  for (size_t i = spec_.part; i < spec_.pages->size(); i += spec_.parts) {
    pending_.emplace((*spec_.pages)[i]->number(), Pending{i, nullptr});
  }
  statistics_.pages_total = pending_.size();
}

/// Numbers of the rows that the snapshot sees, from `place` on.
size_t ScanQuery::select_visible(const Block& block, const Entry* place, uint16_t* out) const {
  size_t first = 0;
  while (first < block.size() && block.place(first) < place) ++first;
  const bool transactional = spec_.kind == TableKind::kTransactional;
  const Snapshot& snapshot = spec_.snapshot;
  const bool all = transactional ? block.max_from() <= snapshot.base().value && block.min_to() > snapshot.high().value
                                 : block.min_to() != kPending;
  if (all) {
    std::copy(kAllRows.begin() + static_cast<ptrdiff_t>(first), kAllRows.begin() + static_cast<ptrdiff_t>(block.size()),
              out);
    return block.size() - first;
  }
  size_t kept = 0;
  for (size_t row = first; row < block.size(); ++row) {
    out[kept] = static_cast<uint16_t>(row);
    const bool visible = transactional ? snapshot.visible(Version(block.valid_from(row))) &&
                                             !snapshot.visible(Version(block.valid_to(row)))
                                       : block.valid_to(row) != kPending;
    kept += visible ? 1 : 0;
  }
  return kept;
}

size_t ScanQuery::select(const Block& block, const Entry* place, uint16_t* out) const {
  size_t n = select_visible(block, place, out);
  n = selection_.keep(block, out, n, out);
  if (!spec_.owns) return n;
  size_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    out[kept] = out[i];
    kept += spec_.owns(Key(block.entry(out[i]).key)) ? 1 : 0;
  }
  return kept;
}

void ScanQuery::evaluate(uint64_t number, const Block& block, const Entry* next) {
  Pending& page = pending_.at(number);
  if (page.place != nullptr && next <= page.place) return;  // the walk serves others here
  if (page.place == nullptr) ++statistics_.pages;
  statistics_.records += block.looked_at();
  RowNumbers rows;
  const size_t n = select(block, page.place, rows.data());
  page.place = next;
  for (size_t taken = 0; taken < n;) {
    if (output_->satisfied()) return;
    if (output_->full() && !send_chunk()) {
      if (!ended_) page.place = block.place(rows[taken]);  // takes it up here when a credit comes
      return;
    }
    const Result<size_t> took = output_->take(block, rows.data() + taken, n - taken);
    if (!took.ok()) return end(took.status());
    taken += *took;
    statistics_.rows += *took;
  }
  if (output_->full()) send_chunk();
}

void ScanQuery::finish_page(uint64_t number) {
  const auto found = pending_.find(number);
  spec_.pages->unpin(found->second.index);
  pending_.erase(found);
}

bool ScanQuery::send_chunk() {
  if (credits_ == 0) return false;
  bytes_.clear();
  if (Status status = output_->chunk().finish(bytes_); !status.ok()) {
    end(std::move(status));
    return false;
  }
  --credits_;
  ++statistics_.chunks;
  statistics_.bytes += bytes_.size();
  sink_.chunk(id_, bytes_);
  return true;
}

void ScanQuery::advance(uint64_t now_ns) {
  while (!ended_) {
    if (!output_->full()) {
      if (more_rows()) break;
      drained_ = drained_ || output_->satisfied() || output_->drain();
    }
    if (drained_ && output_->chunk().rows() == 0) return end(ok_status());
    if (!send_chunk()) break;
  }
  const bool waits = !ended_ && credits_ == 0 && (output_->full() || !more_rows());
  if (waits && !waits_) waits_since_ns_ = now_ns;
  waits_ = waits;
}

void ScanQuery::add_credits(uint32_t credits) { credits_ += credits; }

void ScanQuery::end(Status status) {
  if (ended_) return;
  ended_ = true;
  status_ = std::move(status);
  for (const auto& [number, page] : pending_) spec_.pages->unpin(page.index);
  pending_.clear();
}

void ScanQuery::report(uint64_t now_ns) {
  statistics_.elapsed_ns = now_ns - started_ns_;
  sink_.done(id_, status_, statistics_);
}

}  // namespace loam::storage
