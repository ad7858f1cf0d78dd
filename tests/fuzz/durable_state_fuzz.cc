// Fuzz target: the commit manager's state file. Input: a choice (odd: the bytes are the body, and the target adds
// head and checksum), then the file.
#include "commit-manager/src/catalog/durable_state.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/fuzz/fuzz.h"

namespace {

using namespace loam;

constexpr size_t kMagicAndFormatBytes = 8 + 4;

Buffer file_around(Bytes body) {
  Buffer file;
  commit::encode_state({}, file);  // with the magic and the current format
  file.resize(kMagicAndFormatBytes);
  ByteWriter writer(file);
  writer.put(uint64_t{body.size()});
  writer.put(static_cast<uint64_t>(XXH3_64bits(body.data(), body.size())));
  writer.put_raw(body);
  return file;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes rest = fuzz::input(data, size);
  Buffer file;
  if (fuzz::consume_choice(rest) % 2 == 1) {
    file = file_around(rest);
    rest = file;
  }
  auto decoded = [&] {
    const fuzz::MemoryMeter meter;
    auto result = commit::decode_state(rest);
    meter.require_at_most(128, rest.size());
    return result;
  }();
  if (!decoded.ok()) {
    fuzz::require(decoded.code() == StatusCode::kMalformed || decoded.code() == StatusCode::kUnsupportedVersion,
                  "bytes that are not a state have the right code");
    return -1;
  }
  Buffer once;
  commit::encode_state(*decoded, once);
  const auto again = commit::decode_state(once);
  fuzz::require_ok(again.status(), "an encoded state can be decoded");
  Buffer twice;
  commit::encode_state(*again, twice);
  fuzz::require(equal(once, twice), "a state survives encoding");
  fuzz::require(decoded->shards.owners.size() == wire::kVirtualShards, "every shard has an owner");
  for (const NodeId owner : decoded->shards.owners) {
    fuzz::require(owner.value <= decoded->nodes.size(), "every shard belongs to a known node");
  }
  for (const wire::TableInfo& table : decoded->tables) {
    fuzz::require(table.id < decoded->next_table && table.schema.size() != 0, "every table has an assigned number");
  }
  return 0;
}
