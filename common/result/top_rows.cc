// A heap of at most k rows with the worst row at its root.
#include "common/result/top_rows.h"

#include <algorithm>
#include <string>
#include <utility>

namespace loam {
namespace {

size_t size_of(const TopRows::Row& row) {
  size_t bytes = size_of(row.by);
  for (const Value& value : row.values) bytes += size_of(value);
  return bytes;
}

}  // namespace

bool TopRows::qualifies(const Value& by) const { return rows_.size() < k_ || better(by, rows_.front().by); }

/// Acquires from the account the memory that the rows hold at most while another row is added.
Status TopRows::make_room(size_t row_bytes) {
  if (account_ == nullptr) return ok_status();
  size_t places = rows_.capacity();
  if (rows_.size() == rows_.capacity()) {
    places += std::max<size_t>(1, 2 * places);  // the vector doubles, and holds both arrays until the rows have moved
  }
  const size_t needed = bytes_ + row_bytes + places * sizeof(Row);
  if (needed <= reserved_bytes_) return ok_status();
  LOAM_RETURN_IF_ERROR(account_->acquire(needed - reserved_bytes_));
  reserved_bytes_ = needed;
  return ok_status();
}

Status TopRows::add(Value by, std::vector<Value> row) {
  const auto before = [this](const Row& a, const Row& b) { return better(a.by, b.by); };
  // The row qualifies, so it replaces the worst row. That row leaves first, so the heap never exceeds k rows.
  if (rows_.size() == k_) {
    std::pop_heap(rows_.begin(), rows_.end(), before);
    bytes_ -= size_of(rows_.back());
    rows_.pop_back();
  }
  Row added{std::move(by), std::move(row)};
  const size_t row_bytes = size_of(added);
  LOAM_RETURN_IF_ERROR(make_room(row_bytes));
  rows_.push_back(std::move(added));
  bytes_ += row_bytes;
  std::push_heap(rows_.begin(), rows_.end(), before);
  if (bytes_ <= max_bytes_) return ok_status();
  return {StatusCode::kInvalidArgument, "query: the rows of the top-k take more than " + std::to_string(max_bytes_) +
                                            " bytes; ask for fewer rows or fields"};
}

std::vector<TopRows::Row> TopRows::release_sorted() {
  bytes_ = 0;
  std::sort_heap(rows_.begin(), rows_.end(), [this](const Row& a, const Row& b) { return better(a.by, b.by); });
  return std::exchange(rows_, {});
}

}  // namespace loam
