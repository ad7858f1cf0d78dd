// Schemas and queries for the fuzz targets of rows, chunks and queries: one byte of the input chooses one of 256.
#pragma once

#include "common/testing/random_schema.h"

namespace loam::fuzz {

/// The schema that the byte chooses.
inline Schema chosen_schema(uint8_t choice) {
  testing::Random random(choice);
  return testing::random_schema(random);
}

/// The query that the byte chooses. It fits the schema of the same byte.
inline Query chosen_query(const Schema& schema, uint8_t choice) {
  testing::Random random(uint64_t{choice} + 1000);
  return testing::random_query(random, schema);
}

/// Bitwise equality of values, except that NaN equals NaN; -0 differs from +0.
inline bool same(const Value& a, const Value& b) {
  return a.type() == b.type() && a == b &&
         (!is_float(a.type()) || std::signbit(a.as_float64()) == std::signbit(b.as_float64()) ||
          std::isnan(a.as_float64()));
}

}  // namespace loam::fuzz
