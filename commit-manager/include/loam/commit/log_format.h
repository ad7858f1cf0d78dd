// The bytes of the commit log [R11]: pure functions, no I/O.
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

// A log is one beginning, then any number of records. Integers are little-endian.
//
//   beginning: magic "LOAMCLOG" (8) | format (4) | checksum (8) | size of the body (8) | body
//     body:    nonce (8) | end | cut | number of ranges | for each range: gap, length - 1         (varints)
//              The gap of the first range is first - 1, the gap of another one is first - (last of the range before)
//              - 2.
//   record:    checksum (8) | size of the body (4) | body
//     body:    for each id: the difference to the id before it, to 0 for the first one            (zigzag varints)
//
// All checksums are XXH3. The checksum of the beginning covers size and body. The checksum of a record covers its size
// and its body, and its seed is the checksum of the record before it; the seed of the first record is the nonce. So a
// record is valid at one place of one log only: neither a record that was copied from elsewhere nor a remainder of a
// former log at the same place on the disk continues a log. Therefore the readable part of a damaged log is always a
// prefix of the records that were appended.
//
// The checksum of the beginning is not part of the chain. So batches can be encoded for a log whose beginning is not
// encoded yet: the nonce is all that they need.

/// The format that is written, and the only one that is read.
inline constexpr uint32_t kLogFormat = 1;
/// Ids of one record, at most: a torn record takes no more with it. A larger batch becomes several records.
inline constexpr size_t kMaxRecordIds = 65'536;

/// Appends the beginning of a log to `out`. The ranges of `contents` ascend, do not touch and do not overlap.
/// `nonce` is random.
void encode_beginning(const CommitLogContents& contents, uint64_t nonce, Buffer& out);

/// Appends the records of a batch to `out`; no ids, no record. `chain` is the nonce for the first batch of a log, and
/// afterwards what the call before left. The ids may have any order; none of them is 0. Allocates nothing if `out` has
/// the capacity.
void encode_batch(std::span<const TransactionId> ids, uint64_t& chain, Buffer& out);

/// Why the valid part of a log ends where it ends.
enum class LogTail : uint8_t {
  kWhole,      ///< the bytes end with the last record
  kCutShort,   ///< the bytes end within a record
  kUnwritten,  ///< nothing but zeros follows: a file system gave the file its length before it wrote the bytes
  kDamaged,    ///< the checksum of the next record is wrong
};

/// "whole", "cut short", "unwritten", "damaged".
std::string_view to_string(LogTail tail);

/// What read_log() found.
struct ReadLog {
  CommitLogContents contents;  ///< of the beginning and of all valid records
  uint64_t valid_bytes = 0;    ///< length of beginning and valid records; a log is continued behind them
  uint64_t chain = 0;          ///< for the next encode_batch()
  LogTail tail = LogTail::kWhole;

  uint64_t beginning_bytes = 0;
  uint64_t beginning_end = 0;     ///< commits that had been appended when the log was begun
  uint64_t beginning_ranges = 0;  ///< ranges of committed ids, and the ids in them
  uint64_t beginning_ids = 0;
  uint64_t records = 0;
};

/// Reads a log. Its bytes may come from an enemy; memory is bounded by 64 bytes for each of them.
///
/// kMalformed: there is no beginning, it is damaged, or it contradicts itself; or a record whose checksum is right
/// holds no ids, so it is not a torn one and must not be cut. kUnsupportedVersion: another format. Every other damage
/// behind the beginning ends the valid part (`tail`).
Result<ReadLog> read_log(Bytes bytes);

/// Number of ids in ranges that do not overlap.
uint64_t count_ids(std::span<const IdRange> ranges);

}  // namespace loam::commit
