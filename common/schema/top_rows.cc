#include "common/schema/top_rows.h"

#include <algorithm>
#include <utility>

namespace loam {

bool TopRows::wants(const Value& by) const { return rows_.size() < k_ || better(by, rows_.front().by); }

void TopRows::add(Value by, std::vector<Value> row) {
  const auto before = [this](const Row& a, const Row& b) { return better(a.by, b.by); };
  if (rows_.size() == k_) {
    std::pop_heap(rows_.begin(), rows_.end(), before);
    rows_.pop_back();
  }
  rows_.push_back({std::move(by), std::move(row)});
  std::push_heap(rows_.begin(), rows_.end(), before);
}

std::vector<TopRows::Row> TopRows::take() {
  std::sort_heap(rows_.begin(), rows_.end(), [this](const Row& a, const Row& b) { return better(a.by, b.by); });
  return std::exchange(rows_, {});
}

}  // namespace loam
