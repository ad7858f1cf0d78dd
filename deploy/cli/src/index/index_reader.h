// A range of an index, some records at a time.
#pragma once

#include <cstddef>
#include <vector>

#include <loam/client/transaction.h>

#include "common/base/status.h"

namespace loam::cli {

/// Records asked for at once.
inline constexpr size_t kIndexPageRecords = 1'000;

/// The records of a range in the index's order, page by page, so that a range of any length takes the memory of a
/// page. Each page begins behind the last record of the one before (IndexBound::record).
///
/// For a transaction that outlives it; of what that writes meanwhile, a page shows what lies in its part of the range.
/// One thread.
class IndexReader {
 public:
  IndexReader(client::Transaction& transaction, client::Index index, client::IndexRange range,
              size_t page_records = kIndexPageRecords);

  /// The next records; none at the end. The errors of Transaction::range.
  Result<std::vector<client::Record>> next();

 private:
  std::vector<Value> values_of(const client::Record& record) const;

  client::Transaction& transaction_;
  const client::Index index_;
  client::IndexRange range_;  // what is left of it
  const size_t page_records_;
  size_t left_;  // records that may still be returned
  bool ended_ = false;
};

}  // namespace loam::cli
