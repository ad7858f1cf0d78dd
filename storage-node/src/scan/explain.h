// What a query's plan is, for people.
#pragma once

#include <cstddef>
#include <string>

#include "common/schema/query.h"
#include "common/schema/schema.h"

namespace loam::storage {

/// Lines of text: how the node would evaluate each part of a checked query over a table of so many pages, and which
/// column pages it would skip by what they say of their fields' values. Made from what the scan itself is made of, so
/// that it says what would happen.
std::string explain(const Schema& schema, const Query& query, size_t pages);

}  // namespace loam::storage
