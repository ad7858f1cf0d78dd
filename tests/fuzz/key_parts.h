// Descriptions of keys for the fuzz target of Bd-tree keys: one byte of the input chooses one of 256.
#pragma once

#include <vector>

#include <loam/bdtree/key.h>

#include "common/testing/random_schema.h"

namespace loam::fuzz {

/// One to four key parts, each of any field type.
inline std::vector<bdtree::KeyPart> chosen_key_parts(uint8_t choice) {
  testing::Random random(choice);
  std::vector<bdtree::KeyPart> parts(random.between(1, 4));
  for (bdtree::KeyPart& part : parts) {
    part = {testing::random_type(random), random.one_in(2), random.one_in(2)};
  }
  return parts;
}

}  // namespace loam::fuzz
