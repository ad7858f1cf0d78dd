// The commit log. Input: a choice, then bytes. Choice modulo 3: 0, they are a log; 1, the body of its beginning, around
// which head and checksum are put; 2, bodies of records, each behind its length in one byte, in a log with right
// checksums.
#include <algorithm>

#include <loam/commit/log_format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/fuzz/fuzz.h"

namespace {

using namespace loam;

constexpr size_t kMagicAndFormatBytes = 8 + 4;
constexpr uint64_t kNonce = 7;

/// A checksum of the size and the body, then these.
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
  commit::encode_beginning({}, kNonce, log);
  log.resize(kMagicAndFormatBytes);
  put_sealed<uint64_t>(body, 0, log);
  return log;
}

Buffer log_of_records(Bytes rest) {
  Buffer log;
  commit::encode_beginning({}, kNonce, log);
  uint64_t chain = kNonce;
  while (!rest.empty()) {
    const size_t size = std::min<size_t>(fuzz::take_choice(rest), rest.size());
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
  switch (fuzz::take_choice(rest) % 3) {
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
                  "bytes that are no log have their code");
    return -1;
  }
  require_ranges(found->contents.committed);
  fuzz::require(found->beginning_bytes <= found->valid_bytes && found->valid_bytes <= log.size(), "a part is valid");
  fuzz::require((found->tail == commit::LogTail::kWhole) == (found->valid_bytes == log.size()),
                "the rest is no record");
  fuzz::require(found->beginning_end <= found->contents.end, "records add commits");

  // The valid part goes on where it ends.
  log.resize(found->valid_bytes);
  uint64_t chain = found->chain;
  const TransactionId more[] = {TransactionId(5), TransactionId(UINT64_MAX)};
  commit::encode_batch(more, chain, log);
  const auto continued = commit::read_log(log);
  fuzz::require_ok(continued.status(), "a log that was continued can be read");
  fuzz::require(continued->contents.end == found->contents.end + 2 && continued->chain == chain, "it goes on");

  // And it can be begun anew with what it holds.
  Buffer anew;
  commit::encode_beginning(found->contents, chain, anew);
  const auto begun = commit::read_log(anew);
  fuzz::require_ok(begun.status(), "a beginning can be read");
  fuzz::require(begun->contents == found->contents, "a beginning holds everything");
  return 0;
}
