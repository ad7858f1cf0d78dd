// A value costs one copy out of the noise, so that making and checking values takes the load generator little time
// beside the server.
#include "benchmarks/peers/content.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "common/testing/random.h"

namespace loam::bench {
namespace {

constexpr std::string_view kKeyPrefix = "loam-benchmark-record-";
static_assert(kKeyPrefix.size() + 8 == kKeyBytes);
/// Number of offsets in the noise at which a value may begin; a power of two.
constexpr size_t kNoisePlaces = 64 * 1024;

}  // namespace

void write_key(uint32_t record, char* to) {
  std::memcpy(to, kKeyPrefix.data(), kKeyPrefix.size());
  for (size_t i = 0; i < 8; ++i) to[kKeyPrefix.size() + i] = "0123456789abcdef"[(record >> (28 - 4 * i)) & 15];
}

Content::Content(size_t value_bytes, uint64_t seed) : value_bytes_(value_bytes), noise_(kNoisePlaces + value_bytes) {
  if (value_bytes < kMinValueBytes) {
    throw std::invalid_argument("values have at least " + std::to_string(kMinValueBytes) + " bytes");
  }
  testing::Random random(seed);
  for (char& byte : noise_) byte = static_cast<char>(random());
}

const char* Content::noise_of(uint32_t record, uint32_t stamp) const {
  const uint64_t mixed = (uint64_t{stamp} << 32 | record) * 0x9e3779b97f4a7c15u;
  return noise_.data() + (mixed >> 40) % kNoisePlaces;
}

void Content::write_value(uint32_t record, uint32_t stamp, char* to) const {
  std::memcpy(to, &record, sizeof(record));
  std::memcpy(to + sizeof(record), &stamp, sizeof(stamp));
  std::memcpy(to + kMinValueBytes, noise_of(record, stamp), value_bytes_ - kMinValueBytes);
}

bool Content::is_value(uint32_t record, uint32_t stamp, std::string_view value) const {
  return value.size() == value_bytes_ && std::memcmp(value.data(), &record, sizeof(record)) == 0 &&
         std::memcmp(value.data() + sizeof(record), &stamp, sizeof(stamp)) == 0 &&
         std::memcmp(value.data() + kMinValueBytes, noise_of(record, stamp), value_bytes_ - kMinValueBytes) == 0;
}

}  // namespace loam::bench
