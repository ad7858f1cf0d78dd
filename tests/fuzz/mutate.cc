// Mutations of bytes. They know nothing of the formats, but set lengths and counts to boundary values more often than
// random bytes would.
#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <cstring>

namespace loam::fuzz {
namespace {

constexpr size_t kLongest = 4096;  // longest mutated message

void change_once(testing::Random& random, Buffer& bytes, Bytes other) {
  const size_t at = random.below(bytes.size());
  const size_t count = 1 + random.below(std::min<size_t>(bytes.size() - at, 16));
  const auto where = bytes.begin() + static_cast<ptrdiff_t>(at);
  switch (random.below(8)) {
    case 0:
    case 1:
      // Flips a bit.
      bytes[at] ^= static_cast<std::byte>(1u << random.below(8));
      return;
    case 2:
      // Sets a byte.
      bytes[at] = static_cast<std::byte>(random.below(256));
      return;
    case 3:
      // Sets a possible length or count to a boundary value.
      bytes = with_varint(bytes, at, boundary_values(bytes.size() - at)[random.below(9)]);
      return;
    case 4:
      bytes = with_number(bytes, at, size_t{1} << random.below(4), boundary_values(bytes.size() - at)[random.below(9)]);
      return;
    case 5:
      // Removes bytes.
      bytes.erase(where, where + static_cast<ptrdiff_t>(count));
      return;
    case 6: {
      // Doubles bytes.
      const Buffer piece(where, where + static_cast<ptrdiff_t>(count));
      bytes.insert(where, piece.begin(), piece.end());
      return;
    }
    default: {
      // Inserts a part of the other message.
      const size_t from = random.below(other.size());
      const Bytes piece = other.subspan(from, std::min<size_t>(other.size() - from, count));
      bytes.insert(where, piece.begin(), piece.end());
    }
  }
}

}  // namespace

void mutate(testing::Random& random, Buffer& bytes, Bytes other) {
  for (uint64_t changes = 1 + random.below(3); changes != 0 && !bytes.empty(); --changes) {
    change_once(random, bytes, other);
  }
  if (bytes.empty()) bytes.push_back(static_cast<std::byte>(random.below(256)));
  if (bytes.size() > kLongest) bytes.resize(kLongest);
}

Buffer with_varint(Bytes bytes, size_t at, uint64_t value) {
  Buffer result(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(at));
  ByteWriter writer(result);
  writer.put_varint(value);
  writer.put_raw(bytes.subspan(at + 1));
  return result;
}

Buffer with_number(Bytes bytes, size_t at, size_t width, uint64_t value) {
  Buffer result(bytes.begin(), bytes.end());
  std::memcpy(result.data() + at, &value, std::min(width, result.size() - at));
  return result;
}

}  // namespace loam::fuzz
