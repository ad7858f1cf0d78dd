// The search with vector instructions of 32 bytes, which the base (x86-64-v3) has.
#include "storage-node/src/scan/text_search.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

namespace loam::storage {
namespace {

constexpr size_t kPlaces = 32;

/// Returns, as a bitmap, the places among 32 at which `first` has the byte `a` and `last` has the byte `b`. Reads 32
/// bytes of both.
uint32_t candidates(const char* first, const char* last, char a, char b) {
  const auto equal = [](const char* at, char c) {
    return _mm256_cmpeq_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)), _mm256_set1_epi8(c));
  };
  return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_and_si256(equal(first, a), equal(last, b))));
}

}  // namespace

bool contains(std::string_view text, std::string_view piece) {
  if (piece.empty()) return true;
  if (piece.size() > text.size()) return false;
  const size_t places = text.size() - piece.size() + 1;
  const size_t last = piece.size() - 1;
  // Each turn tests 32 places at once. Few of them have the first and the last byte of the piece, and memcmp()
  // decides there.
  for (size_t at = 0; at < places; at += kPlaces) {
    const char* begin = text.data() + at;
    const char* end = begin + last;
    std::array<std::array<char, kPlaces>, 2> copies;
    if (places - at < kPlaces) {  // copy the rest: the bytes behind the text may not be read
      std::memcpy(copies[0].data(), begin, places - at);
      std::memcpy(copies[1].data(), end, places - at);
      begin = copies[0].data();
      end = copies[1].data();
    }
    uint32_t hits = candidates(begin, end, piece.front(), piece.back());
    // The copies are not initialised behind the rest of the text, so these places do not count.
    if (places - at < kPlaces) hits &= (uint32_t{1} << (places - at)) - 1;
    for (; hits != 0; hits &= hits - 1) {
      const size_t place = at + static_cast<size_t>(std::countr_zero(hits));
      if (std::memcmp(text.data() + place, piece.data(), piece.size()) == 0) return true;
    }
  }
  return false;
}

}  // namespace loam::storage
