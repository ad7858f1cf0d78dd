// `loam scan --index`: records in the order of an index.
#pragma once

#include <optional>
#include <string>

#include <loam/client/client.h>

#include "deploy/cli/src/context.h"
#include "deploy/cli/src/query/query_plan.h"

namespace loam::cli {

/// The options of a scan by index as the user typed them. Without `name` the scan uses no index.
struct IndexScanText {
  std::string name;                   ///< of the index
  std::optional<std::string> from;    ///< lower bound; none: from the first entry
  std::optional<std::string> to;      ///< upper bound; none: to the last entry
  std::optional<std::string> prefix;  ///< replaces `from` and `to`
  bool reverse = false;               ///< from the upper end to the lower
};

/// Prints the records of a range of an index in one snapshot. `plan` is a projection: it names the printed columns and
/// the limit. Returns the exit code.
int scan_index(const Context& context, client::Client& client, const client::Table& table, const QueryPlan& plan,
               const IndexScanText& text);

}  // namespace loam::cli
