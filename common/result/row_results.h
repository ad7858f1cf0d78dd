// The results of a query over single rows, for rows that no storage node has.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/expression/field_batch.h"
#include "common/expression/row_selection.h"
#include "common/result/aggregate.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"
#include "common/schema/row.h"
#include "common/schema/schema.h"

namespace loam {

/// Evaluates a query over rows that a transaction has written. Its chunks are partial, like those of a storage node, so
/// a ResultMerger merges both.
///
/// Owner: one thread. The schema and the rows outlive it.
class RowResults {
 public:
  /// `query` was checked against `schema`.
  RowResults(const Schema& schema, Query query);

  /// Adds a row. kInvalidArgument, kOverflow: an expression is an error for a row that the query uses, or the
  /// texts and distinct values of its groups are over a limit. After an error the object must not be used any more.
  Status add(Key key, Version version, const RowView& row);
  /// Ends the rows and returns the chunks. Errors as add().
  Result<std::vector<std::shared_ptr<const Chunk>>> finish();

 private:
  struct Identity {
    Key key;
    Version version;
  };

  /// Evaluates the rows of the batch.
  Status evaluate();
  Status append(size_t row);
  Status end_groups();
  Status end_chunk();

  const Query query_;
  const std::shared_ptr<const ResultSchema> partial_;
  FieldBatch batch_;
  std::vector<Identity> identities_;  // by row of the batch
  RowSelection selection_;
  std::vector<uint16_t> used_;  // the computed columns of the result
  std::optional<GroupTable> groups_;
  ChunkBuilder builder_;
  std::vector<std::shared_ptr<const Chunk>> chunks_;
};

}  // namespace loam
