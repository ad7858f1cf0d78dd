// A set of rows of one block, as a bitmap.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace loam {

/// Upper bound on the rows of a block, and the number of bits of a RowMask.
inline constexpr size_t kBlockRows = 256;

/// A set of row numbers of one block, one bit for each row. Evaluation computes a set once for several queries and
/// combines sets word by word. A plain value.
struct RowMask {
  static constexpr size_t kWordBits = 64;
  static constexpr size_t kWords = kBlockRows / kWordBits;

  /// One register of AVX2: an array would be copied in halves, and a load behind these would wait for both.
  using Words [[gnu::vector_size(kBlockRows / 8)]] = uint64_t;
  Words words{};

  /// Returns the rows [0, n).
  static RowMask first(size_t n) {
    RowMask mask;
    if (n == kBlockRows) {  // most blocks are full
      mask.words = ~mask.words;
      return mask;
    }
    for (size_t w = 0; w < kWords; ++w) {
      const size_t begin = w * kWordBits;
      mask.words[w] = n <= begin ? 0 : n >= begin + kWordBits ? ~uint64_t{0} : (uint64_t{1} << (n - begin)) - 1;
    }
    return mask;
  }

  bool test(size_t row) const { return ((words[row / kWordBits] >> (row % kWordBits)) & 1) != 0; }
  void set(size_t row) { words[row / kWordBits] |= uint64_t{1} << (row % kWordBits); }
  void reset(size_t row) { words[row / kWordBits] &= ~(uint64_t{1} << (row % kWordBits)); }

  bool any() const { return (words[0] | words[1] | words[2] | words[3]) != 0; }
  size_t count() const {
    size_t n = 0;
    for (size_t w = 0; w < kWords; ++w) n += static_cast<size_t>(std::popcount(words[w]));
    return n;
  }
  /// Returns the lowest row. The set must not be empty.
  size_t front() const {
    size_t w = 0;
    while (words[w] == 0) ++w;
    return w * kWordBits + static_cast<size_t>(std::countr_zero(words[w]));
  }

  /// Calls f(row) for each row, in ascending order.
  template <class F>
  void for_each(F f) const {
    for (size_t w = 0; w < kWords; ++w) {
      for (uint64_t word = words[w]; word != 0; word &= word - 1) {
        f(w * kWordBits + static_cast<size_t>(std::countr_zero(word)));
      }
    }
  }
  /// Returns the rows for which test(row) is true.
  template <class Test>
  RowMask filter(Test test) const {
    RowMask out;
    for_each([&](size_t row) {
      out.words[row / kWordBits] |= static_cast<uint64_t>(test(row) ? 1 : 0) << (row % kWordBits);
    });
    return out;
  }
  /// Writes the row numbers in ascending order to `out` and returns their number.
  size_t numbers(uint16_t* out) const {
    size_t n = 0;
    for_each([&](size_t row) { out[n++] = static_cast<uint16_t>(row); });
    return n;
  }

  RowMask& operator&=(const RowMask& other) {
    words &= other.words;
    return *this;
  }
  RowMask& operator|=(const RowMask& other) {
    words |= other.words;
    return *this;
  }
  /// Removes the rows of `other`.
  RowMask& operator-=(const RowMask& other) {
    words &= ~other.words;
    return *this;
  }
  friend RowMask operator&(RowMask a, const RowMask& b) { return a &= b; }
  friend RowMask operator|(RowMask a, const RowMask& b) { return a |= b; }
  friend RowMask operator-(RowMask a, const RowMask& b) { return a -= b; }
  bool operator==(const RowMask& other) const {
    const RowMask different{words ^ other.words};
    return !different.any();
  }
};
static_assert(RowMask::kWords == 4, "any() names the words");

/// Row numbers of one block, in ascending order.
using RowNumbers = std::array<uint16_t, kBlockRows>;

}  // namespace loam
