// `loam scan --index`: records in the order of an index.
#pragma once

#include <optional>
#include <string>

#include <loam/client/client.h>

#include "deploy/cli/src/context.h"
#include "deploy/cli/src/query/question.h"

namespace loam::cli {

/// What a person typed. Without a name it is no scan by index.
struct IndexScanText {
  std::string name;
  std::optional<std::string> from;
  std::optional<std::string> to;
  std::optional<std::string> prefix;  ///< instead of the two
  bool reverse = false;
};

/// Prints the columns of the question, a projection, of the records of the range, up to its limit; all in one
/// snapshot. Returns the exit code.
int scan_index(const Context& context, client::Client& client, const client::Table& table, const Question& question,
               const IndexScanText& text);

}  // namespace loam::cli
