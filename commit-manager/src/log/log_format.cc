// The encoder and the reader of the commit log. The header has the layout. The reader takes any bytes, because a crash
// or a failing disk may leave any.
#include <algorithm>
#include <cstring>
#include <string>

#include <loam/commit/log_format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/base/assert.h"

namespace loam::commit {
namespace {

constexpr std::string_view kMagic = "LOAMCLOG";
constexpr size_t kHeadBytes = 8 + 4 + 8 + 8;  // bytes of a checkpoint before its body
constexpr size_t kChecksumAt = 8 + 4;         // offset of the checksum in a checkpoint
constexpr size_t kRecordHeadBytes = 8 + 4;    // of a record
constexpr size_t kMaxRecordBody = kMaxRecordIds * kMaxVarintBytes;
/// Upper bound on the position in a checkpoint. No cluster reaches it, and no position behind it can overflow.
constexpr uint64_t kMaxEnd = uint64_t{1} << 62;

uint64_t checksum(Bytes bytes, uint64_t seed) { return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed); }

template <class T>
void put_at(Buffer& out, size_t at, T value) {
  std::memcpy(out.data() + at, &value, sizeof(T));
}

/// Maps small differences of either sign to small numbers. Bijective over all 64 bits.
uint64_t zigzag(uint64_t difference) { return (difference << 1) ^ (0 - (difference >> 63)); }
uint64_t unzigzag(uint64_t number) { return (number >> 1) ^ (0 - (number & 1)); }

Status malformed(const std::string& why) { return {StatusCode::kMalformed, "the commit log " + why}; }

bool all_zero(Bytes bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

/// Collects ids in any order and returns them as ranges. Consecutive ids that arrive one after another take the
/// memory of one.
class IdCollector {
 public:
  explicit IdCollector(std::vector<IdRange>& ranges) : ranges_(ranges) {}

  void add(TransactionId id) {
    if (!ranges_.empty() && ranges_.back().last.value + 1 == id.value) {
      ranges_.back().last = id;
    } else {
      ranges_.push_back({id, id});
    }
  }
  /// Sorts the ranges, and merges those that touch or overlap.
  void finish() {
    std::ranges::sort(ranges_, {}, &IdRange::first);
    size_t kept = 0;
    for (const IdRange& range : ranges_) {
      if (kept > 0 && range.first.value - 1 <= ranges_[kept - 1].last.value) {
        ranges_[kept - 1].last = std::max(ranges_[kept - 1].last, range.last);
      } else {
        ranges_[kept++] = range;
      }
    }
    ranges_.resize(kept);
  }

 private:
  std::vector<IdRange>& ranges_;
};

Status read_ranges(ByteReader& reader, std::vector<IdRange>& ranges) {
  const size_t count = reader.get_count(2);
  ranges.reserve(count);
  uint64_t before = 0;  // the lowest possible id of the next range, minus 1
  for (size_t i = 0; i < count; ++i) {
    const uint64_t gap = reader.get_varint();
    const uint64_t length = reader.get_varint();
    IdRange range;
    // Each of the three sums may overflow: the lowest possible id, the gap to the first id, the length.
    if (__builtin_add_overflow(before, 1, &range.first.value) ||
        __builtin_add_overflow(range.first.value, gap, &range.first.value) ||
        __builtin_add_overflow(range.first.value, length, &range.last.value)) {
      return malformed("is damaged: its checkpoint has ranges of ids beyond 64 bits");
    }
    if (reader.failed()) break;
    ranges.push_back(range);
    // The next range does not touch this one. No range can follow the largest id: adding 1 to it would overflow.
    if (range.last.value == UINT64_MAX) {
      if (i + 1 < count) return malformed("is damaged: its checkpoint has ranges of ids beyond 64 bits");
    } else {
      before = range.last.value + 1;
    }
  }
  return reader.finish("the checkpoint of the commit log");
}

Result<LogReadResult> read_checkpoint(Bytes bytes) {
  ByteReader reader(bytes);
  const Bytes magic = reader.get_raw(kMagic.size());
  const auto format = reader.get<uint32_t>();
  const auto sum = reader.get<uint64_t>();
  const auto size = reader.get<uint64_t>();
  if (reader.failed()) {
    return malformed("is cut short: it has " + std::to_string(bytes.size()) +
                     " bytes, the head of its checkpoint alone has " + std::to_string(kHeadBytes));
  }
  if (!equal(magic, as_bytes(kMagic))) return malformed("does not begin with " + std::string(kMagic));
  if (format != kLogFormat) {
    return Status(StatusCode::kUnsupportedVersion, "the commit log has format " + std::to_string(format) +
                                                       ", and this program reads format " + std::to_string(kLogFormat) +
                                                       ": run the version of Loam that wrote it");
  }
  if (size > reader.remaining()) {
    return malformed("is cut short: the body of its checkpoint has " + std::to_string(reader.remaining()) +
                     " bytes, not " + std::to_string(size));
  }
  const Bytes body = reader.get_raw(static_cast<size_t>(size));
  if (checksum(bytes.subspan(kChecksumAt + sizeof(sum), sizeof(size) + body.size()), 0) != sum) {
    return malformed("is damaged: the checksum of its checkpoint is wrong");
  }
  LogReadResult log;
  ByteReader body_reader(body);
  log.chain = body_reader.get<uint64_t>();
  log.contents.end = body_reader.get_varint();
  log.contents.truncated_up_to = TransactionId(body_reader.get_varint());
  LOAM_RETURN_IF_ERROR(read_ranges(body_reader, log.contents.committed));
  if (log.contents.end > kMaxEnd) return malformed("is damaged: its checkpoint has an impossible number of commits");
  log.checkpoint_bytes = kHeadBytes + body.size();
  log.valid_bytes = log.checkpoint_bytes;
  log.checkpoint_end = log.contents.end;
  log.checkpoint_ranges = log.contents.committed.size();
  log.checkpoint_ids = count_ids(log.contents.committed);
  return log;
}

/// Returns kClean if a valid record is at the front of `rest`, and sets `body` to its body. Otherwise returns why
/// there is none.
LogTail find_record(Bytes rest, uint64_t chain, uint64_t& sum, Bytes& body) {
  ByteReader reader(rest);
  sum = reader.get<uint64_t>();
  const auto size = reader.get<uint32_t>();
  body = reader.get_raw(size);
  const bool impossible = size == 0 || size > kMaxRecordBody;
  if (!reader.failed() && !impossible && checksum(rest.subspan(sizeof(sum), sizeof(size) + size), chain) == sum) {
    return LogTail::kClean;
  }
  // Zeros come first, because they also look like a record of an impossible size. A record that reaches beyond the end
  // of the bytes is torn, unless its size is one that no writer makes.
  if (all_zero(rest)) return LogTail::kZeroFilled;
  const bool head = rest.size() >= kRecordHeadBytes;
  return head && (!reader.failed() || impossible) ? LogTail::kDamaged : LogTail::kTorn;
}

/// Adds the ids of a record to `ids` and their number to `count`.
Status read_record(Bytes body, IdCollector& ids, uint64_t& count) {
  ByteReader reader(body);
  uint64_t id = 0;
  while (!reader.at_end()) {
    id += unzigzag(reader.get_varint());
    if (reader.failed() || id == 0) return malformed("has a record with a right checksum that holds no ids");
    ids.add(TransactionId(id));
    ++count;
  }
  return reader.status("a record of the commit log");
}

void encode_record(std::span<const TransactionId> ids, uint64_t& chain, Buffer& out) {
  const size_t begin = out.size();
  ByteWriter writer(out);
  writer.put(uint64_t{0});  // checksum and size are put in below
  writer.put(uint32_t{0});
  uint64_t before = 0;
  for (const TransactionId id : ids) {
    LOAM_DCHECK(id.value != 0, "0 is no transaction");
    writer.put_varint(zigzag(id.value - before));
    before = id.value;
  }
  // The checksum covers the size, so the size is put in first.
  put_at(out, begin + sizeof(chain), static_cast<uint32_t>(out.size() - begin - kRecordHeadBytes));
  chain = checksum(Bytes(out).subspan(begin + sizeof(chain)), chain);
  put_at(out, begin, chain);
}

}  // namespace

void encode_checkpoint(const CommitLogContents& contents, uint64_t nonce, Buffer& out) {
  const size_t begin = out.size();
  ByteWriter writer(out);
  writer.put_raw(as_bytes(kMagic));
  writer.put(kLogFormat);
  writer.put(uint64_t{0});  // checksum and size are put in below
  writer.put(uint64_t{0});
  writer.put(nonce);
  LOAM_CHECK(contents.end <= kMaxEnd, "positions count commits");
  writer.put_varint(contents.end);
  writer.put_varint(contents.truncated_up_to.value);
  writer.put_varint(contents.committed.size());
  uint64_t before = 0;
  bool more = true;  // a further range may follow; false behind the largest id
  for (const IdRange& range : contents.committed) {
    LOAM_CHECK(more && range.first.value > before && range.first <= range.last,
               "ranges of committed ids ascend and do not touch");
    writer.put_varint(range.first.value - before - 1);
    writer.put_varint(range.last.value - range.first.value);
    more = range.last.value != UINT64_MAX;
    before = range.last.value + 1;
  }
  put_at(out, begin + kHeadBytes - sizeof(uint64_t), uint64_t{out.size() - begin - kHeadBytes});
  const Bytes covered = Bytes(out).subspan(begin + kChecksumAt + sizeof(uint64_t));
  put_at(out, begin + kChecksumAt, checksum(covered, 0));
}

void encode_batch(std::span<const TransactionId> ids, uint64_t& chain, Buffer& out) {
  while (!ids.empty()) {
    const size_t count = std::min(ids.size(), kMaxRecordIds);
    encode_record(ids.first(count), chain, out);
    ids = ids.subspan(count);
  }
}

std::string_view to_string(LogTail tail) {
  switch (tail) {
    case LogTail::kClean:
      return "clean";
    case LogTail::kTorn:
      return "torn";
    case LogTail::kZeroFilled:
      return "zero-filled";
    case LogTail::kDamaged:
      break;
  }
  return "damaged";
}

Result<LogReadResult> read_log(Bytes bytes) {
  // Without a valid checkpoint nothing of the log is usable: its nonce is the seed of the first record. Behind it, the
  // first record that is not valid ends the log, even if later bytes look like records: a log that left one out would
  // not be a prefix of the commits (R11, commit log and restart of the commit manager).
  auto begun = read_checkpoint(bytes);
  if (!begun.ok()) return begun;
  LogReadResult& log = *begun;
  IdCollector ids(log.contents.committed);
  for (;;) {
    const Bytes rest = bytes.subspan(log.valid_bytes);
    if (rest.empty()) break;
    uint64_t sum = 0;
    Bytes body;
    log.tail = find_record(rest, log.chain, sum, body);
    if (log.tail != LogTail::kClean) break;
    LOAM_RETURN_IF_ERROR(read_record(body, ids, log.contents.end));
    log.chain = sum;
    log.valid_bytes += kRecordHeadBytes + body.size();
    ++log.records;
  }
  ids.finish();  // one sort at the end, because ids of different records may be neighbours
  return begun;
}

uint64_t count_ids(std::span<const IdRange> ranges) {
  uint64_t count = 0;
  for (const IdRange& range : ranges) count += range.last.value - range.first.value + 1;
  return count;
}

}  // namespace loam::commit
