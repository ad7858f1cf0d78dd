// Reads a range of an index page by page.
#pragma once

#include <cstddef>
#include <vector>

#include <loam/client/transaction.h>

#include "common/base/status.h"

namespace loam::cli {

/// Default number of records of a page.
inline constexpr size_t kIndexPageRecords = 1'000;

/// Reads the records of a range in the order of the index, page by page, so that a range of any length needs the memory
/// of one page. Each page begins after the last record of the page before (IndexBound::record).
///
/// The transaction outlives the reader. If the transaction writes meanwhile, later pages show its writes in their part
/// of the range. Threads: one.
class IndexReader {
 public:
  IndexReader(client::Transaction& transaction, client::Index index, client::IndexRange range,
              size_t page_records = kIndexPageRecords);

  /// The next page; empty at the end of the range. Errors are those of Transaction::range.
  Result<std::vector<client::Record>> next();

 private:
  std::vector<Value> values_of(const client::Record& record) const;

  client::Transaction& transaction_;
  const client::Index index_;
  client::IndexRange range_;  // the part that is not read yet
  const size_t page_records_;
  size_t left_;  // records that may still be returned
  bool ended_ = false;
};

}  // namespace loam::cli
