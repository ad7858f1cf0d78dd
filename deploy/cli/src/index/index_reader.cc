#include "deploy/cli/src/index/index_reader.h"

#include <algorithm>
#include <utility>

namespace loam::cli {

IndexReader::IndexReader(client::Transaction& transaction, client::Index index, client::IndexRange range,
                         size_t page_records)
    : transaction_(transaction),
      index_(std::move(index)),
      range_(std::move(range)),
      page_records_(page_records),
      left_(range_.limit) {}

Result<std::vector<client::Record>> IndexReader::next() {
  if (ended_ || left_ == 0) return std::vector<client::Record>();
  // Where many records have the same values, pages grow with what is read again: twice as much is read in all.
  range_.limit = repeated_ + std::min(left_, std::max(page_records_, repeated_));
  LOAM_ASSIGN_OR_RETURN(std::vector<client::Record> records, transaction_.range(index_, range_));
  ended_ = records.size() < range_.limit;
  if (records.size() <= repeated_) return std::vector<client::Record>();
  const std::vector<Value> last = values_of(records.back());
  const auto same = [&](const client::Record& record) { return values_of(record) == last; };
  const size_t before = std::exchange(
      repeated_, static_cast<size_t>(std::find_if_not(records.rbegin(), records.rend(), same) - records.rbegin()));
  (range_.backward ? range_.to : range_.from) = client::IndexBound{last};
  records.erase(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(before));
  left_ -= records.size();
  return records;
}

std::vector<Value> IndexReader::values_of(const client::Record& record) const {
  std::vector<Value> values;
  for (const client::Index::Part& part : index_.parts()) values.push_back(record.view().value(part.field));
  return values;
}

}  // namespace loam::cli
