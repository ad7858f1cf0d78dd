// Schemas and queries that targets of rows, chunks and queries choose from: one byte of the input names one of 256.
#pragma once

#include "common/schema/random_schema.h"

namespace loam::fuzz {

inline Schema chosen_schema(uint8_t choice) {
  testing::Random random(choice);
  return testing::random_schema(random);
}

/// Fits chosen_schema() of the same choice.
inline Query chosen_query(const Schema& schema, uint8_t choice) {
  testing::Random random(uint64_t{choice} + 1000);
  return testing::random_query(random, schema);
}

/// Equal in every bit that a value has: NaN equals NaN, but -0 is not +0.
inline bool same(const Value& a, const Value& b) {
  return a.type() == b.type() && a == b &&
         (!is_float(a.type()) || std::signbit(a.as_float64()) == std::signbit(b.as_float64()) ||
          std::isnan(a.as_float64()));
}

}  // namespace loam::fuzz
