// The last stage of a query: it turns selected rows into chunks of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/env.h"
#include "common/base/memory_account.h"
#include "common/base/status.h"
#include "common/expression/row_mask.h"
#include "common/result/aggregate.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"
#include "storage-node/src/scan/block_values.h"

namespace loam::storage {

/// Size at which a query sends a chunk.
inline constexpr size_t kScanChunkBytes = size_t{256} << 10;
/// The size in some runs of the simulator. Its tables are small, and with this size a result still has many chunks.
inline constexpr size_t kShortChunkBytes = 64;

/// Turns the selected rows of a query into chunks of the query's partial schema.
///
/// Role: a projection writes rows as they arrive; a top-k and aggregates write rows after the last page. Owner: a
/// query. Threads: one. The schema outlives the output.
///
/// An output holds at most one chunk. While it is full(), it consumes no row until the chunk was taken away. So a slow
/// client costs the storage node one chunk, and not the result of a whole page.
class Output {
 public:
  /// Makes the output of a query that was checked against `schema`; `bound` is the same query with the numbers of the
  /// values that it will consume. The output acquires the memory of the rows and
  /// groups that it keeps from `account`; the caller acquires the memory of the chunk. The account outlives the output.
  static std::unique_ptr<Output> make(const Schema& schema, const Query& query, const BlockValues::BoundQuery& bound,
                                      MemoryAccount& account);
  virtual ~Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// Consumes rows of the block, the lowest first, until the chunk is full or the limit of the query is reached.
  /// Removes them from `rows` and returns their number, which is 0 only if full() or satisfied().
  ///   kInvalidArgument: the query exceeds a limit of groups or of memory for top-k.
  ///   kOverloaded: the account has no memory.
  virtual Result<size_t> consume(BlockValues& values, RowMask& rows) = 0;
  /// Returns one accumulator for each aggregate, to which an interval index adds (interval_index.h). Null unless the
  /// query has aggregates without group-by.
  virtual Accumulator* accumulators() { return nullptr; }
  /// Acquires the memory for `count` groups of an interval index, besides those that indexes have added so far. Returns
  /// false if there is none. Only for a query with groups.
  virtual bool reserve_indexed_groups(size_t count);
  /// Returns the accumulators of the group of a row, and adds the group if there is none. Only for a query with groups,
  /// after reserve_indexed_groups().
  virtual Accumulator* accumulators_of(const GroupRow& row);
  /// Writes the kept rows or groups to the chunk, after the last consume(). Returns true if nothing is left, and false
  /// if the chunk is full. kInvalidArgument: a count of distinct values has too many.
  virtual Result<bool> drain() { return true; }

  /// Returns whether the chunk must be sent before the next consume() or drain().
  virtual bool full() const {
    return chunk_.rows() != 0 && (chunk_.bytes() >= chunk_bytes_ || chunk_.rows() + Block::kRows > kMaxChunkRows);
  }
  /// Returns whether the limit of the query is reached, so that it needs no further row.
  virtual bool satisfied() const { return false; }
  /// Returns the chunk under construction.
  ChunkBuilder& chunk() { return chunk_; }

 protected:
  explicit Output(ResultSchema schema) : chunk_(std::move(schema)) {}

  ChunkBuilder chunk_;
  const size_t chunk_bytes_ = Env::buggify("node.scan.short_chunks") ? kShortChunkBytes : kScanChunkBytes;
};

}  // namespace loam::storage
