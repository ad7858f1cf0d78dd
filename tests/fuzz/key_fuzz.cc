// Fuzz target: keys of the Bd-tree. Input: a choice of key parts, then two keys, one after the other.
#include <compare>
#include <string>
#include <vector>

#include <loam/bdtree/key.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/key_parts.h"

namespace {

using namespace loam;
using bdtree::KeyCodec;
using bdtree::KeyPart;

std::strong_ordering order_of(const std::vector<KeyPart>& parts, const std::vector<Value>& a,
                              const std::vector<Value>& b) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::weak_ordering order = parts[i].descending ? b[i].compare(a[i]) : a[i].compare(b[i]);
    if (order != 0) return order < 0 ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  return std::strong_ordering::equal;
}

/// The values of the key; empty if the bytes are not a key.
std::optional<std::vector<Value>> decode(const KeyCodec& codec, Bytes key) {
  auto values = [&] {
    const fuzz::MemoryMeter meter;
    auto decoded = codec.decode(key);
    meter.require_at_most(4, key.size());
    return decoded;
  }();
  if (!values.ok()) {
    fuzz::require(values.code() == StatusCode::kMalformed, "bytes that are not a key are kMalformed");
    return std::nullopt;
  }
  std::string again;
  fuzz::require_ok(codec.encode(*values, again), "values of a key make a key");
  fuzz::require(as_text(key) == again, "a key survives decoding");
  std::string prefix;
  const std::span<const Value> some(values->data(), values->size() - 1);
  fuzz::require_ok(codec.encode_prefix(some, prefix), "values of a key make a prefix");
  fuzz::require(again.starts_with(prefix), "a key begins with its prefix");
  return std::move(*values);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes rest = fuzz::input(data, size);
  const std::vector<KeyPart> parts = fuzz::chosen_key_parts(fuzz::consume_choice(rest));
  const KeyCodec codec = KeyCodec::make(parts).value();
  (void)decode(codec, rest);
  // The input does not say where the first key ends, so the target tries all positions. At most one is right.
  for (size_t end = 1; end <= rest.size() && end <= bdtree::kMaxKeyBytes; ++end) {
    const auto first = codec.decode(rest.first(end));
    if (!first.ok()) continue;
    const Bytes one = rest.first(end), other = rest.subspan(end);
    const auto second = decode(codec, other);
    if (second)
      fuzz::require(bdtree::compare(one, other) == order_of(parts, *first, *second),
                    "the order of keys is that of their values");
    return 0;
  }
  return -1;
}
