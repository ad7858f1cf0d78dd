// Pages through a range of an index: each page is a range() of its own, which begins after the last record of the page
// before.
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
  range_.limit = std::min(left_, page_records_);
  LOAM_ASSIGN_OR_RETURN(std::vector<client::Record> records, transaction_.range(index_, range_));
  // A page that is not full is the last one. A full page may be the last one, too; the next call then returns an empty
  // page.
  ended_ = records.size() < range_.limit;
  if (records.empty()) return records;
  left_ -= records.size();
  const client::Record& last = records.back();
  // The new bound is exclusive and includes the key of the record, because several records may have equal values in
  // the index.
  (range_.backward ? range_.to : range_.from) = client::IndexBound{values_of(last), false, last.key()};
  return records;
}

std::vector<Value> IndexReader::values_of(const client::Record& record) const {
  std::vector<Value> values;
  for (const client::Index::Part& part : index_.parts()) values.push_back(record.view().value(part.field));
  return values;
}

}  // namespace loam::cli
