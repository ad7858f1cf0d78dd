// A group of a split block as a row, for group tables.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/result/aggregate.h"
#include "common/schema/expression.h"
#include "common/schema/order_key.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"
#include "storage-node/src/scan/block_groups.h"

namespace loam::storage {

/// The values of the group-by columns of a query, from the keys of a group. Its other columns are not there. The query
/// and the keys outlive it.
class GroupOfKeys final : public GroupRow {
 public:
  GroupOfKeys(const Schema& schema, const Query& query, const BlockGroups::Keys& keys) : query_(query), keys_(keys) {
    const QueryColumns columns(schema, query.computed);
    for (const uint16_t column : query.group_by) types_.push_back(columns.type(column));
    texts_.resize(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] && is_variable(types_[i])) texts_[i] = head_bytes(*keys[i]);
    }
  }

  bool is_null(size_t column) const override { return !keys_[place(column)]; }
  Int128 whole(size_t column) const override { return *keys_[place(column)]; }
  double real(size_t column) const override { return float_of_key(*keys_[place(column)]); }
  std::string_view text(size_t column) const override {
    // The zeros at the end are padding: a text with one of its own is not split.
    const std::array<char, sizeof(int64_t)>& bytes = texts_[place(column)];
    const std::string_view all(bytes.data(), bytes.size());
    const size_t last = all.find_last_not_of('\0');
    return all.substr(0, last == std::string_view::npos ? 0 : last + 1);
  }

 private:
  size_t place(size_t column) const {
    return static_cast<size_t>(std::ranges::find(query_.group_by, column) - query_.group_by.begin());
  }

  const Query& query_;
  const BlockGroups::Keys& keys_;
  std::vector<FieldType> types_;
  std::vector<std::array<char, sizeof(int64_t)>> texts_;
};

}  // namespace loam::storage
