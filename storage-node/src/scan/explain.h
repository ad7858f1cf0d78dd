// The text that explains how a storage node evaluates a query.
#pragma once

#include <cstddef>
#include <string>

#include "common/schema/query.h"
#include "common/schema/schema.h"

namespace loam::storage {

/// Returns lines of text that say how a storage node would evaluate each part of a query over a table of `pages` pages,
/// and by which bounds of field values it would skip column pages. The query was checked against the schema. The
/// function compiles the query as a scan does, so the text agrees with the execution.
std::string explain(const Schema& schema, const Query& query, size_t pages);

}  // namespace loam::storage
