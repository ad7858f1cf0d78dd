#include "storage-node/src/scan/text_search.h"

#include <memory>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::storage {
namespace {

// Compares with std::string_view::find. Each text has an allocation of its own, so that a sanitizer finds a read
// outside of it.
TEST(TextSearch, ModelOfFind) {
  testing::Random random(testing::test_seed(std::random_device()()));
  size_t found = 0, missing = 0;
  for (int round = 0; round < 60'000; ++round) {
    const auto make = [&](size_t size) {
      std::string text(size, ' ');
      for (char& c : text) c = static_cast<char>(random.one_in(20) ? 0 : 'a' + random.below(2));
      return text;
    };
    const std::string made = make(random.below(random.one_in(4) ? 150 : 12));
    const std::string piece = make(random.below(random.one_in(6) ? 40 : 8));
    const auto memory = std::make_unique<char[]>(made.size());
    std::copy(made.begin(), made.end(), memory.get());
    const std::string_view text(memory.get(), made.size());
    const bool expected = text.find(piece) != std::string_view::npos;
    ASSERT_EQ(contains(text, piece), expected) << "\"" << made << "\" \"" << piece << "\"";
    ++(expected ? found : missing);
  }
  EXPECT_GT(found, 5'000u);
  EXPECT_GT(missing, 5'000u);
}

}  // namespace
}  // namespace loam::storage
