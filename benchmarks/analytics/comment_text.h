// Texts of comments, by the grammar of the TPC-H specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/testing/random.h"

namespace loam::bench {

/// A long text of random sentences [TPC-H 4.2.2.13 and 4.2.2.14], of which comments are pieces. Immutable. The text has
/// 1 MiB; the specification's has 300 MB.
class CommentText {
 public:
  /// Makes the text. Objects with equal seeds have equal texts.
  explicit CommentText(uint64_t seed);

  /// A piece at a random place, of a random length from `low` to `high` bytes. A view into this object.
  std::string_view piece(testing::Random& random, size_t low, size_t high) const;

 private:
  std::string text_;
};

}  // namespace loam::bench
