// Fuzz target: the commit log. Input: a choice, then bytes. Choice modulo 3: 0, the bytes are a log; 1, they are the
// body of a checkpoint, and the target adds head and checksum; 2, they are bodies of records, each after its length
// in one byte, in a log with correct checksums.
#include <algorithm>

#include <loam/commit/log_format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/fuzz/fuzz.h"

namespace {

using namespace loam;

constexpr size_t kMagicAndFormatBytes = 8 + 4;
constexpr uint64_t kNonce = 7;

/// Appends a checksum of size and body, then size and body.
template <class Size>
uint64_t put_sealed(Bytes body, uint64_t seed, Buffer& out) {
  Buffer sized;
  ByteWriter size_writer(sized);
  size_writer.put(static_cast<Size>(body.size()));
  size_writer.put_raw(body);
  const uint64_t sum = XXH3_64bits_withSeed(sized.data(), sized.size(), seed);
  ByteWriter writer(out);
  writer.put(sum);
  writer.put_raw(sized);
  return sum;
}

Buffer log_around(Bytes body) {
  Buffer log;
  commit::encode_checkpoint({}, kNonce, log);
  log.resize(kMagicAndFormatBytes);
  put_sealed<uint64_t>(body, 0, log);
  return log;
}

Buffer log_of_records(Bytes rest) {
  Buffer log;
  commit::encode_checkpoint({}, kNonce, log);
  uint64_t chain = kNonce;
  while (!rest.empty()) {
    const size_t size = std::min<size_t>(fuzz::consume_choice(rest), rest.size());
    chain = put_sealed<uint32_t>(rest.first(size), chain, log);
    rest = rest.subspan(size);
  }
  return log;
}

void require_ranges(const std::vector<commit::IdRange>& ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    fuzz::require(ranges[i].first.value > 0 && ranges[i].first <= ranges[i].last, "a range has ids");
    fuzz::require(i == 0 || ranges[i].first.value - 1 > ranges[i - 1].last.value, "ranges ascend and do not touch");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes rest = fuzz::input(data, size);
  Buffer log;
  switch (fuzz::consume_choice(rest) % 3) {
    case 1:
      log = log_around(rest);
      break;
    case 2:
      log = log_of_records(rest);
      break;
    default:
      log.assign(rest.begin(), rest.end());
  }
  const auto found = [&] {
    const fuzz::MemoryMeter meter;
    auto result = commit::read_log(log);
    meter.require_at_most(64, log.size());
    return result;
  }();
  if (!found.ok()) {
    fuzz::require(found.code() == StatusCode::kMalformed || found.code() == StatusCode::kUnsupportedVersion,
                  "bytes that are not a log have the right code");
    return -1;
  }
  // The accepted content must be consistent.
  require_ranges(found->contents.committed);
  fuzz::require(found->checkpoint_bytes <= found->valid_bytes && found->valid_bytes <= log.size(),
                "the valid part lies in the log");
  fuzz::require((found->tail == commit::LogTail::kClean) == (found->valid_bytes == log.size()),
                "the rest is not a record");
  fuzz::require(found->checkpoint_end <= found->contents.end, "records add commits");

  // The log can be continued at the end of the valid part.
  log.resize(found->valid_bytes);
  uint64_t chain = found->chain;
  const TransactionId more[] = {TransactionId(5), TransactionId(UINT64_MAX)};
  commit::encode_batch(more, chain, log);
  const auto continued = commit::read_log(log);
  fuzz::require_ok(continued.status(), "a continued log can be read");
  fuzz::require(continued->contents.end == found->contents.end + 2 && continued->chain == chain, "the log continues");

  // The log can be rewritten with its content as checkpoint.
  Buffer anew;
  commit::encode_checkpoint(found->contents, chain, anew);
  const auto begun = commit::read_log(anew);
  fuzz::require_ok(begun.status(), "a rewritten log can be read");
  fuzz::require(begun->contents == found->contents, "a checkpoint holds everything");
  return 0;
}
