#include "storage-node/src/scan/page_bounds.h"

#include <algorithm>
#include <limits>

namespace loam::storage {
namespace {

/// The bounds of a field whose column has this header; nothing if its keys are no integers, or not its values.
std::optional<Bounds> bounds_of_field(FieldType type, const Column& column) {
  if (is_variable(type) || is_float(type) || type == FieldType::kBoolean) return std::nullopt;
  if (column.least > column.greatest) return Bounds{};
  // The lowest and the highest key stand for all values beyond 64 bits.
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(), kHighest = std::numeric_limits<int64_t>::max();
  if (is_long(type) && (column.least == kLowest || column.greatest == kHighest)) return std::nullopt;
  return Bounds{column.least, column.greatest};
}

}  // namespace

std::vector<std::optional<Bounds>> PageBounds::of_all(const QueryColumns& columns,
                                                      std::span<const std::optional<Bounds>> fields) {
  std::vector<std::optional<Bounds>> bounds, arguments;
  std::vector<FieldType> types;
  for (const Computed& column : columns.computed()) {
    arguments.clear();
    types.clear();
    for (const uint16_t argument : column.arguments) {
      types.push_back(columns.type(argument));
      arguments.push_back(argument < kFirstComputed ? fields[argument] : bounds[argument - kFirstComputed]);
    }
    bounds.push_back(bounds_of(column, types, arguments));
  }
  return bounds;
}

PageBounds::PageBounds(const Columns& page, const Schema& schema, std::span<const Computed> computed,
                       std::span<const uint16_t> numbers)
    : page_(page), numbers_(numbers) {
  if (computed.empty()) return;
  std::vector<std::optional<Bounds>> fields;
  fields.reserve(schema.size());
  for (size_t field = 0; field < schema.size(); ++field) {
    fields.push_back(bounds_of_field(schema.field(field).type, page.column(field)));
  }
  bounds_ = of_all({schema, computed}, fields);
}

std::optional<Bounds> PageBounds::computed(uint16_t column) const {
  const auto found = std::ranges::find(numbers_, column);
  if (found == numbers_.end()) return std::nullopt;
  return bounds_[static_cast<size_t>(found - numbers_.begin())];
}

}  // namespace loam::storage
