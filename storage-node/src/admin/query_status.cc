#include "storage-node/src/admin/query_status.h"

#include <charconv>
#include <cstdio>

namespace loam::storage {
namespace {

/// Parses the whole text as a number.
template <class Number>
bool parse_all(std::string_view text, Number& value, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string QueryId::to_string() const {
  char digits[9];
  std::snprintf(digits, sizeof(digits), "%08x", hash);
  return std::to_string(session.value) + "-" + digits;
}

Result<QueryId> QueryId::parse(const std::string& text) {
  QueryId id;
  const size_t dash = text.find('-');
  const std::string_view all = text;
  if (dash == std::string::npos || all.size() - dash - 1 != 8 ||
      !parse_all(all.substr(0, dash), id.session.value, 10) || !parse_all(all.substr(dash + 1), id.hash, 16)) {
    return Status(StatusCode::kInvalidArgument,
                  "'" + text + "' is no id of a query; `loam queries` shows the ids, such as 17-3fa9c104");
  }
  return id;
}

}  // namespace loam::storage
