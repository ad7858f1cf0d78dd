#include "benchmarks/bdtree/ycsb_records.h"

#include <cstdio>
#include <cstring>

#include "benchmarks/bdtree/tree_process.h"
#include "common/schema/value.h"

namespace loam::bench {
namespace {

using bdtree::KeyCodec;

/// A checksum of eight bytes at a time, which costs the client little of the measured time.
uint64_t checksum(std::string_view bytes) {
  uint64_t sum = bytes.size();
  for (; bytes.size() >= sizeof sum; bytes.remove_prefix(sizeof sum)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    sum = splitmix64(sum ^ word);
  }
  for (const char byte : bytes) sum = splitmix64(sum ^ static_cast<unsigned char>(byte));
  return sum;
}

}  // namespace

YcsbKeys::YcsbKeys(Type type)
    : type_(type),
      codec_(
          value_or_die(KeyCodec::make({{type == Type::kInt64 ? FieldType::kInt64 : FieldType::kText, false, false}}))) {
}

std::string YcsbKeys::of(uint64_t number) const {
  std::string key;
  const uint64_t bits = splitmix64(number);
  if (type_ == Type::kInt64) {
    const Value value = Value::int64(static_cast<int64_t>(bits));
    check_ok(codec_.encode({&value, 1}, key));
    return key;
  }
  // The first 20 bytes are unique to the number, and up to 12 more follow.
  char unique[24];
  std::snprintf(unique, sizeof unique, "user%016lx", bits);
  std::string text = unique;
  uint64_t more = splitmix64(bits);
  for (uint64_t left = more % 13; left > 0; --left) {
    more /= 16;
    text.push_back(static_cast<char>('a' + more % 16));
  }
  const Value value = Value::text(text);
  check_ok(codec_.encode({&value, 1}, key));
  return key;
}

const char* YcsbKeys::description() const { return type_ == Type::kInt64 ? "int64" : "text of 20 to 32 bytes"; }

std::string ycsb_value(std::string_view key, uint64_t stamp, size_t bytes) {
  std::string value(1, static_cast<char>(key.size()));
  value += key;
  LOAM_CHECK(value.size() + sizeof stamp <= bytes, "a value too small for its key");
  while (value.size() + sizeof stamp < bytes) {
    stamp = splitmix64(stamp);
    value.append(reinterpret_cast<const char*>(&stamp), std::min(sizeof stamp, bytes - sizeof stamp - value.size()));
  }
  const uint64_t sum = checksum(value);
  value.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  return value;
}

bool ycsb_value_is_right(Bytes value, std::string_view key, size_t bytes) {
  if (value.size() != bytes) return false;
  const std::string_view text = as_text(value);
  uint64_t sum = 0;
  std::memcpy(&sum, text.data() + text.size() - sizeof sum, sizeof sum);
  return static_cast<unsigned char>(text[0]) == key.size() && text.substr(1, key.size()) == key &&
         checksum(text.substr(0, text.size() - sizeof sum)) == sum;
}

}  // namespace loam::bench
