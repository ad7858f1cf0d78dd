// Conversion of statistics, by their field lists, into the messages of the administration.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <loam/admin/statistics.pb.h>

#include "common/base/statistics.h"

namespace loam {

static_assert(admin::COUNTER == static_cast<int>(statistics::Kind::kCounter) &&
              admin::TEXT == static_cast<int>(statistics::Kind::kText));

/// Appends all fields of `from` to `to`, in the order of the field list.
template <statistics::HasFieldList S>
void add_statistics(const S& from, google::protobuf::RepeatedPtrField<admin::Statistic>& to) {
  statistics::for_each_field(from, [&](const auto& field, const auto& value) {
    admin::Statistic& out = *to.Add();
    out.set_name(std::string(field.name));
    out.set_kind(static_cast<admin::Kind>(field.kind));
    out.set_help(std::string(field.help));
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::string>) {
      out.set_text(value);
    } else if constexpr (std::is_same_v<T, bool>) {
      out.set_flag(value);
    } else {
      out.set_number(value);
    }
  });
}

/// Appends the columns of the field list to `to`, and a row for each element of `from`.
template <statistics::HasFieldList S>
void fill_table(const std::vector<S>& from, admin::StatisticsTable& to) {
  statistics::for_each_field<S>([&](const auto& field) {
    admin::StatisticsTable::Column& column = *to.add_columns();
    column.set_name(std::string(field.name));
    column.set_kind(static_cast<admin::Kind>(field.kind));
    column.set_help(std::string(field.help));
  });
  for (const S& one : from) {
    admin::StatisticsTable::Row& row = *to.add_rows();
    statistics::for_each_field(one, [&](const auto&, const auto& value) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::string>) {
        row.add_texts(value);
      } else {
        row.add_numbers(value);
      }
    });
  }
}

}  // namespace loam
