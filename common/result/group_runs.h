// Groups that do not fit into memory, as sorted runs in a temporary file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/result/aggregate.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"

namespace loam {

/// An external merge of groups: each run has the groups that once filled the memory of a client, in the order of their
/// keys. The merge reads all runs at once, with one chunk of each in memory.
///
/// The file lies in the folder for temporary files (TMPDIR, or /tmp) and has no name, so it goes when the process does.
/// Owner: one thread. Reading and writing block.
class GroupRuns {
 public:
  /// Chunks have the columns of `partial`.
  explicit GroupRuns(std::shared_ptr<const ResultSchema> partial);
  ~GroupRuns();
  GroupRuns(const GroupRuns&) = delete;
  GroupRuns& operator=(const GroupRuns&) = delete;

  /// Whether there is no run.
  bool empty() const { return runs_.empty(); }
  /// Writes all groups of a table as a run, and clears the table. kNoSpace: the file cannot be written.
  Status add(GroupTable& table);
  /// Merges all runs into `table`, which is empty, and calls `batch` whenever it has some complete groups; it clears
  /// the table afterwards. Ends when `batch` returns false, because the caller wants no more groups. Fails if the file
  /// cannot be read, and with the errors of GroupTable::merge() and of `batch`.
  Status merge(GroupTable& table, const std::function<Result<bool>()>& batch);

 private:
  /// The place of a run in the file.
  struct Run {
    uint64_t next;  // place of the next chunk
    uint64_t end;
  };
  struct Cursor;

  Status open();
  Status write_chunk(ChunkBuilder& builder);
  Status write(Bytes bytes);
  Status read(uint64_t at, std::span<std::byte> into) const;
  /// Moves a cursor to its next row. Sets its chunk to null at the end of the run.
  Status advance(Cursor& cursor, GroupTable& table);

  const std::shared_ptr<const ResultSchema> partial_;
  int file_ = -1;
  uint64_t size_ = 0;
  std::vector<Run> runs_;
};

}  // namespace loam
