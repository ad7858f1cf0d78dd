// The format of the commit log [R11, commit log and restart of the commit manager]: pure functions, no I/O.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <loam/commit/core.h>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::commit {

// A log is one checkpoint and any number of records behind it. Integers are little-endian.
//
//   checkpoint: magic "LOAMCLOG" (8) | format (4) | checksum (8) | size of the body (8) | body
//     body:     nonce (8) | end | truncated up to | number of ranges | for each range: gap, length - 1   (varints)
//               The gap of the first range is first - 1. The gap of another range is first - (last of the range
//               before) - 2.
//   record:     checksum (8) | size of the body (4) | body
//     body:     for each id: the difference to the id before it, to 0 for the first one   (zigzag varints)
//
// All checksums are XXH3. The checksum of the checkpoint covers size and body. The checksum of a record covers its
// size and its body, and its seed is the checksum of the record before; the seed of the first record is the nonce. So
// a record is valid at one place of one log only. Neither a record that was copied from elsewhere nor the remainder
// of an earlier log at the same place of the disk continues a log. Therefore the readable part of a damaged log is
// always a prefix of the records that were appended.
//
// The checksum of the checkpoint is not part of the chain. So a writer can encode batches for a log whose checkpoint
// is not encoded yet: it needs the nonce alone.

/// The format version that is written, and the only one that is read.
inline constexpr uint32_t kLogFormat = 1;
/// Upper bound on the ids of one record, and so on the ids that one torn record loses. A larger batch becomes several
/// records.
inline constexpr size_t kMaxRecordIds = 65'536;

/// Appends the checkpoint of a log to `out`. The ranges of `contents` ascend, do not touch and do not overlap.
/// `nonce` is random.
void encode_checkpoint(const CommitLogContents& contents, uint64_t nonce, Buffer& out);

/// Appends the records of a batch to `out`; an empty batch has no record. `chain` is the nonce for the first batch of
/// a log, and afterwards the value that the previous call left in it. The ids may have any order; none is 0.
/// Allocates nothing if `out` has the capacity.
void encode_batch(std::span<const TransactionId> ids, uint64_t& chain, Buffer& out);

/// The reason why the valid part of a log ends.
enum class LogTail : uint8_t {
  kClean,       ///< the bytes end with the last record
  kTorn,        ///< the bytes end within a record
  kZeroFilled,  ///< nothing but zeros follows: a file system gave the file its length before it wrote the bytes
  kDamaged,     ///< the checksum of the next record is wrong
};

/// Returns "clean", "torn", "zero-filled" or "damaged".
std::string_view to_string(LogTail tail);

/// The result of read_log().
struct LogReadResult {
  CommitLogContents contents;      ///< content of the checkpoint and of all valid records
  uint64_t valid_bytes = 0;        ///< length of checkpoint and valid records; the next record goes behind them
  uint64_t chain = 0;              ///< the `chain` of the next encode_batch()
  LogTail tail = LogTail::kClean;  ///< why the valid part ends

  uint64_t checkpoint_bytes = 0;   ///< length of the checkpoint
  uint64_t checkpoint_end = 0;     ///< position of the last commit that the checkpoint counts
  uint64_t checkpoint_ranges = 0;  ///< ranges of committed ids in the checkpoint
  uint64_t checkpoint_ids = 0;     ///< ids in these ranges
  uint64_t records = 0;            ///< valid records
};

/// Reads a log. The bytes may be hostile: memory is bounded by 64 bytes for each byte of the log.
///
/// kMalformed: the checkpoint is missing, damaged or contradicts itself, or a record with a right checksum does not
/// decode into ids. Such a record is not torn, so the reader must not drop it. kUnsupportedVersion: the log
/// has another format. Any other damage behind the checkpoint ends the valid part, and `tail` names it.
Result<LogReadResult> read_log(Bytes bytes);

/// Returns the number of ids in ranges that do not overlap.
uint64_t count_ids(std::span<const IdRange> ranges);

}  // namespace loam::commit
