#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <loam/commit/log_format.h>

#define XXH_INLINE_ALL
#include <gtest/gtest.h>
#include <xxhash.h>

#include "common/testing/random.h"

namespace loam::commit {
namespace {

constexpr uint64_t kNonce = 0x1122334455667788;
constexpr size_t kRecordHeadBytes = 12;

using Ids = std::vector<TransactionId>;

Ids ids_of(std::initializer_list<uint64_t> numbers) {
  Ids ids;
  for (const uint64_t number : numbers) ids.emplace_back(number);
  return ids;
}

CommitLogContents example() {
  return {.committed = {{TransactionId(3), TransactionId(5)}, {TransactionId(7), TransactionId(7)}},
          .truncated_up_to = TransactionId(2),
          .end = 9};
}

/// A log that grows batch by batch, with its length after each batch.
struct Log {
  explicit Log(const CommitLogContents& contents, uint64_t nonce = kNonce) : chain(nonce) {
    encode_checkpoint(contents, nonce, bytes);
    ends.push_back(bytes.size());
  }
  void append(const Ids& ids) {
    encode_batch(ids, chain, bytes);
    ends.push_back(bytes.size());
  }
  Bytes record(size_t number) const { return Bytes(bytes).subspan(ends[number], ends[number + 1] - ends[number]); }

  uint64_t chain;
  Buffer bytes;
  std::vector<size_t> ends;  // end of the checkpoint, then of each record
};

Log example_log() {
  Log log(example());
  log.append(ids_of({6, 12, 10}));
  log.append(ids_of({11}));
  log.append(ids_of({900, 14, 13, UINT64_MAX}));
  return log;
}

LogReadResult read(Bytes bytes) {
  auto found = read_log(bytes);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return found.ok() ? std::move(found).value() : LogReadResult();
}

Buffer joined(std::initializer_list<Bytes> parts) {
  Buffer all;
  for (const Bytes part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// Makes a checkpoint with a right checksum around any body.
Buffer beginning_around(Bytes body) {
  Buffer sized;
  ByteWriter size(sized);
  size.put(uint64_t{body.size()});
  size.put_raw(body);
  Buffer bytes;
  ByteWriter writer(bytes);
  writer.put_raw(as_bytes("LOAMCLOG"));
  writer.put(kLogFormat);
  writer.put(static_cast<uint64_t>(XXH3_64bits_withSeed(sized.data(), sized.size(), 0)));
  writer.put_raw(sized);
  return bytes;
}

Buffer beginning_of(std::initializer_list<uint64_t> numbers) {
  Buffer body;
  ByteWriter writer(body);
  writer.put(kNonce);
  for (const uint64_t number : numbers) writer.put_varint(number);
  return beginning_around(body);
}

/// Makes a record with a right checksum around any body.
Buffer record_around(Bytes body, uint64_t chain) {
  Buffer sized;
  ByteWriter size(sized);
  size.put(static_cast<uint32_t>(body.size()));
  size.put_raw(body);
  Buffer bytes;
  ByteWriter writer(bytes);
  writer.put(static_cast<uint64_t>(XXH3_64bits_withSeed(sized.data(), sized.size(), chain)));
  writer.put_raw(sized);
  return bytes;
}

TEST(LogFormat, ReturnsAppendedCommits) {
  const Log log = example_log();
  const LogReadResult found = read(log.bytes);
  const std::vector<IdRange> ranges = {{TransactionId(3), TransactionId(7)},
                                       {TransactionId(10), TransactionId(14)},
                                       {TransactionId(900), TransactionId(900)},
                                       {TransactionId(UINT64_MAX), TransactionId(UINT64_MAX)}};
  EXPECT_EQ(found.contents.committed, ranges);
  EXPECT_EQ(found.contents.truncated_up_to, TransactionId(2));
  EXPECT_EQ(found.contents.end, 9u + 8u);
  EXPECT_EQ(found.valid_bytes, log.bytes.size());
  EXPECT_EQ(found.chain, log.chain);
  EXPECT_EQ(found.tail, LogTail::kClean);
  EXPECT_EQ(found.checkpoint_bytes, log.ends[0]);
  EXPECT_EQ(found.checkpoint_end, 9u);
  EXPECT_EQ(found.checkpoint_ranges, 2u);
  EXPECT_EQ(found.checkpoint_ids, 4u);
  EXPECT_EQ(found.records, 3u);
}

TEST(LogFormat, ContinuesAfterTheReadPart) {
  Log log = example_log();
  uint64_t chain = read(log.bytes).chain;
  Buffer more;
  encode_batch(ids_of({20}), chain, more);
  EXPECT_EQ(read(joined({log.bytes, more})).contents.end, 18u);
}

TEST(LogFormat, TakesAnyIdsInAnyOrder) {
  const uint64_t seed = testing::test_seed(1);
  testing::Random random(seed);
  for (int run = 0; run < 50; ++run) {
    std::set<uint64_t> model;
    Log log({.committed = {}, .truncated_up_to = TransactionId(random()), .end = random.below(1u << 30)});
    uint64_t appended = 0;
    for (uint64_t batches = random.below(20); batches > 0; --batches) {
      Ids ids;
      for (uint64_t count = random.below(40); count > 0; --count) {
        const uint64_t id = random.one_in(9) ? std::max<uint64_t>(random(), 1) : random.between(1, 300);
        ids.emplace_back(id);
        model.insert(id);
      }
      appended += ids.size();
      log.append(ids);
    }
    const LogReadResult found = read(log.bytes);
    EXPECT_EQ(found.contents.end, found.checkpoint_end + appended);
    std::set<uint64_t> held;
    for (size_t i = 0; i < found.contents.committed.size(); ++i) {
      const IdRange& range = found.contents.committed[i];
      ASSERT_TRUE(i == 0 || range.first.value > found.contents.committed[i - 1].last.value + 1);
      for (uint64_t id = range.first.value; id <= range.last.value; ++id) {
        held.insert(id);
        if (id == UINT64_MAX) break;
      }
    }
    ASSERT_EQ(held, model);
    // The same bytes in the place of the checkpoint.
    Buffer begun;
    encode_checkpoint(found.contents, random(), begun);
    EXPECT_EQ(read(begun).contents, found.contents);
  }
}

TEST(LogFormat, EveryPrefixHoldsAPrefixOfTheCommits) {
  const Log log = example_log();
  const std::vector<uint64_t> commits = {9, 12, 13, 17};  // after each of log.ends
  for (size_t length = 0; length <= log.bytes.size(); ++length) {
    SCOPED_TRACE(length);
    const auto found = read_log(Bytes(log.bytes).first(length));
    if (length < log.ends[0]) {
      EXPECT_EQ(found.code(), StatusCode::kMalformed);
      continue;
    }
    ASSERT_TRUE(found.ok());
    const size_t whole = static_cast<size_t>(std::ranges::upper_bound(log.ends, length) - log.ends.begin()) - 1;
    EXPECT_EQ(found->valid_bytes, log.ends[whole]);
    EXPECT_EQ(found->contents.end, commits[whole]);
    EXPECT_EQ(found->tail, length == log.ends[whole] ? LogTail::kClean : LogTail::kTorn);
    EXPECT_EQ(found->contents, read(Bytes(log.bytes).first(log.ends[whole])).contents);
  }
}

TEST(LogFormat, EveryFlippedBitIsFound) {
  const Log log = example_log();
  for (size_t bit = 0; bit < log.bytes.size() * 8; ++bit) {
    SCOPED_TRACE(bit);
    Buffer damaged = log.bytes;
    damaged[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    const auto found = read_log(damaged);
    if (bit / 8 < log.ends[0]) {
      EXPECT_TRUE(found.code() == StatusCode::kMalformed || found.code() == StatusCode::kUnsupportedVersion);
      continue;
    }
    ASSERT_TRUE(found.ok());
    const size_t whole = static_cast<size_t>(std::ranges::upper_bound(log.ends, bit / 8) - log.ends.begin()) - 1;
    EXPECT_EQ(found->valid_bytes, log.ends[whole]);
    EXPECT_NE(found->tail, LogTail::kClean);
  }
}

TEST(LogFormat, AcceptsRecordsOfItsOwnChainOnly) {
  const Log log = example_log();
  const Bytes beginning = Bytes(log.bytes).first(log.ends[0]);
  const auto records_behind = [&](std::initializer_list<Bytes> records) {
    Buffer bytes = joined({beginning});
    for (const Bytes record : records) bytes.insert(bytes.end(), record.begin(), record.end());
    return read(bytes).records;
  };
  EXPECT_EQ(records_behind({log.record(0), log.record(1)}), 2u);
  EXPECT_EQ(records_behind({log.record(1)}), 0u) << "a record is missing";
  EXPECT_EQ(records_behind({log.record(0), log.record(0)}), 1u) << "a record is there twice";
  EXPECT_EQ(records_behind({log.record(1), log.record(0)}), 0u) << "records are exchanged";

  // A log of the same commits with another nonce.
  Log other(example(), kNonce + 1);
  other.append(ids_of({6, 12, 10}));
  EXPECT_EQ(records_behind({other.record(0)}), 0u);
  EXPECT_EQ(read(joined({Bytes(other.bytes).first(other.ends[0]), log.record(0)})).records, 0u);
  EXPECT_EQ(read(other.bytes).records, 1u);
}

TEST(LogFormat, ZerosAreNoRecords) {
  Log log = example_log();
  const uint64_t end = log.bytes.size();
  for (const size_t zeros : {1u, 12u, 13u, 5'000u}) {
    log.bytes.resize(end + zeros);
    const LogReadResult found = read(log.bytes);
    EXPECT_EQ(found.valid_bytes, end);
    EXPECT_EQ(found.tail, LogTail::kZeroFilled);
    EXPECT_EQ(found.contents.end, 17u);
  }
}

TEST(LogFormat, NamesTheReasonOfTheTail) {
  Log log = example_log();
  log.bytes.back() ^= std::byte{1};
  EXPECT_EQ(read(log.bytes).tail, LogTail::kDamaged);
  log.bytes.pop_back();
  EXPECT_EQ(read(log.bytes).tail, LogTail::kTorn);
  EXPECT_EQ(to_string(LogTail::kClean), "clean");
  EXPECT_EQ(to_string(LogTail::kTorn), "torn");
  EXPECT_EQ(to_string(LogTail::kZeroFilled), "zero-filled");
  EXPECT_EQ(to_string(LogTail::kDamaged), "damaged");
}

TEST(LogFormat, RefusesWhatIsNoLog) {
  EXPECT_EQ(read_log({}).code(), StatusCode::kMalformed);
  EXPECT_EQ(read_log(as_bytes("LOAMCMSTxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")).code(), StatusCode::kMalformed);
  Buffer later = example_log().bytes;
  later[8] = std::byte{kLogFormat + 1};
  const Status status = read_log(later).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupportedVersion);
  EXPECT_NE(status.message().find("run the version of Loam that wrote it"), std::string_view::npos);
}

TEST(LogFormat, RefusesInconsistentCheckpoint) {
  constexpr uint64_t kMost = UINT64_MAX;
  EXPECT_TRUE(read_log(beginning_of({9, 2, 1, 0, 0})).ok());
  EXPECT_TRUE(read_log(beginning_of({9, 2, 1, 0, kMost - 1})).ok()) << "all ids";
  EXPECT_TRUE(read_log(beginning_of({9, 2, 2, 0, kMost - 3, 0, 0})).ok()) << "all ids except one";
  for (const Buffer& bytes :
       {beginning_of({9, 2, 1, 0, kMost}), beginning_of({9, 2, 1, kMost, 0}), beginning_of({9, 2, 1, 1, kMost - 1}),
        beginning_of({9, 2, 2, 0, kMost - 1, 0, 0}), beginning_of({9, 2, 2, 0, kMost - 2, 0, 0}),
        beginning_of({9, 2, 2, 0, kMost - 3, 1, 0}), beginning_of({kMost, 2, 0}), beginning_of({9, 2, 2, 0, 0}),
        beginning_of({9, 2, 1, 0, 0, 0}), beginning_of({9, 2}), beginning_around({})}) {
    EXPECT_EQ(read_log(bytes).code(), StatusCode::kMalformed);
  }
}

TEST(LogFormat, CountsTakeNoMemory) {
  // The bytes claim more ranges and longer records than memory can hold.
  EXPECT_EQ(read_log(beginning_of({9, 2, uint64_t{1} << 60, 0, 0})).code(), StatusCode::kMalformed);
  Log log = example_log();
  ByteWriter writer(log.bytes);
  writer.put(uint64_t{1});
  writer.put(UINT32_MAX);
  const LogReadResult found = read(log.bytes);
  EXPECT_EQ(found.tail, LogTail::kDamaged);
  EXPECT_EQ(found.valid_bytes, log.ends.back());
  Buffer endless = beginning_around({});
  std::ranges::fill(std::span(endless).subspan(20, 8), std::byte{0xff});
  EXPECT_EQ(read_log(endless).code(), StatusCode::kMalformed);
}

TEST(LogFormat, RefusesRecordWithValidChecksumAndNoIds) {
  const Log log = example_log();
  Buffer zero_id;
  ByteWriter(zero_id).put_varint(0);
  Buffer half_id;
  ByteWriter(half_id).put(uint8_t{0x80});
  for (const Buffer& body : {zero_id, half_id}) {
    EXPECT_EQ(read_log(joined({log.bytes, record_around(body, log.chain)})).code(), StatusCode::kMalformed);
    EXPECT_TRUE(read_log(joined({log.bytes, record_around(body, log.chain + 1)})).ok());
  }
}

TEST(LogFormat, DividesALargeBatch) {
  Ids ids;
  for (uint64_t i = 0; i < kMaxRecordIds + 1; ++i) ids.emplace_back(2 * i + 1);
  Log log({});
  log.append(ids);
  const LogReadResult found = read(log.bytes);
  EXPECT_EQ(found.records, 2u);
  EXPECT_EQ(found.contents.end, ids.size());
  EXPECT_EQ(count_ids(found.contents.committed), ids.size());
  log.append({});
  EXPECT_EQ(read(log.bytes).records, 2u) << "an empty batch makes no record";
}

TEST(LogFormat, AllocatesNothingOnceTheBufferIsWarm) {
  uint64_t chain = kNonce;
  Buffer out;
  encode_batch(ids_of({UINT64_MAX, 1, UINT64_MAX}), chain, out);
  const std::byte* const at = out.data();
  const size_t capacity = out.capacity();
  for (uint64_t id = 1; id < 100; ++id) {
    out.clear();
    encode_batch(ids_of({id, 3 * id}), chain, out);
    EXPECT_EQ(out.data(), at);
    EXPECT_EQ(out.capacity(), capacity);
  }
}

TEST(LogFormat, SmallBatchesAreSmall) {
  Log log({});
  log.append(ids_of({1'000'000}));
  log.append(ids_of({1'000'001, 1'000'003, 1'000'002, 1'000'004}));
  EXPECT_EQ(log.record(0).size(), kRecordHeadBytes + 3);
  EXPECT_EQ(log.record(1).size(), kRecordHeadBytes + 3 + 3);
}

// The bytes of a log of this version. A change of the format without a new version number fails here.
TEST(LogFormat, MatchesTheGoldenBytes) {
  const Log log = example_log();
  std::string hex;
  for (const std::byte byte : log.bytes) {
    hex += "0123456789abcdef"[static_cast<uint8_t>(byte) >> 4];
    hex += "0123456789abcdef"[static_cast<uint8_t>(byte) & 15];
  }
  EXPECT_EQ(hex,
            "4c4f414d434c4f470100000078d3f5e6682488b90f000000000000008877665544332211090202020200000a712822956fd6a403"
            "0000000c0c03025022fb1a1e8b6f0100000016c86d992ee6c9844106000000880eeb0d011b");
}

}  // namespace
}  // namespace loam::commit
