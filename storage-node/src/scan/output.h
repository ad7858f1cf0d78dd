// What becomes of the rows that a query selects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/env.h"
#include "common/base/memory_account.h"
#include "common/base/status.h"
#include "common/schema/aggregate.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"
#include "storage-node/src/scan/block_values.h"
#include "storage-node/src/scan/row_mask.h"

namespace loam::storage {

/// A chunk is sent when it has grown to this.
inline constexpr size_t kScanChunkBytes = size_t{256} << 10;
/// In the simulator, whose tables are small, so that streams have many chunks.
inline constexpr size_t kShortChunkBytes = 64;

/// Takes the least or greatest of some values, given as a key (BlockValues::keys), into what the accumulator has; the
/// caller counts them into it afterwards.
void take_extreme(AggregateOp op, FieldType type, int64_t key, Accumulator& into);

/// Role: turns selected rows into chunks of the query's partial schema: a projection row by row as they come, a top-k
/// or aggregates after the last page. Owner: a query; one thread. The schema outlives it.
///
/// It holds at most one chunk: whoever is full() takes nothing more until the chunk was taken away. So a reader that is
/// slow costs the node one chunk, not a page's worth of them.
class Output {
 public:
  /// `query` was checked against `schema`. The output asks the account for the memory of the rows and groups that it
  /// keeps. The sender of chunks asks for that of the chunk. The account outlives the output.
  static std::unique_ptr<Output> make(const Schema& schema, const Query& query, MemoryAccount& account);
  virtual ~Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// Takes rows of the block, the lowest first, until the chunk is full or the limit is reached, and takes them off the
  /// set; returns how many. Never 0 unless full() or satisfied(). Errors: kInvalidArgument when a limit of groups or of
  /// a top-k's memory is passed, kOverloaded when the account has no memory.
  virtual Result<size_t> take(BlockValues& values, RowMask& rows) = 0;
  /// Of aggregates without group-by: one for each, for whoever counts rows up elsewhere (interval_index.h). Else null.
  virtual Accumulator* accumulators() { return nullptr; }
  /// After the last row: moves what was kept into the chunk, until it is full or nothing is left (then returns true).
  virtual bool drain() { return true; }

  /// The chunk should be sent before anything else happens.
  bool full() const {
    return chunk_.rows() != 0 && (chunk_.bytes() >= chunk_bytes_ || chunk_.rows() + Block::kRows > kMaxChunkRows);
  }
  /// The limit is reached: no row more is wanted.
  virtual bool satisfied() const { return false; }
  ChunkBuilder& chunk() { return chunk_; }

 protected:
  explicit Output(ResultSchema schema) : chunk_(std::move(schema)) {}

  ChunkBuilder chunk_;
  const size_t chunk_bytes_ = Env::rare("node.scan.short_chunks") ? kShortChunkBytes : kScanChunkBytes;
};

}  // namespace loam::storage
