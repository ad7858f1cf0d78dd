// Operations on texts, and IN.
#include <algorithm>
#include <limits>

#include "common/expression/computed_lanes.h"
#include "common/schema/order_key.h"

namespace loam {
namespace {

/// Makes the texts of the present rows. append(row, bytes) appends the text of one row, and may stop after more than
/// kMaxComputedText bytes. The views are set at the end, because the bytes move while they grow.
template <class Append>
void make_texts(ComputedLanes& work, size_t& room, Append append) {
  std::string& bytes = work.bytes;
  bytes.clear();
  std::array<size_t, kBlockRows> ends;
  RowMask too_long, no_room;
  work.lanes.present.for_each([&](size_t row) {
    const size_t begin = bytes.size();
    if (!no_room.any()) append(row, bytes);
    if (bytes.size() - begin > kMaxComputedText) {
      too_long.set(row);
      bytes.resize(begin);
    }
    if (bytes.size() > room) no_room.set(row);
    if (no_room.any()) bytes.resize(begin);
    ends[row] = bytes.size();
  });
  room -= bytes.size();
  std::string_view* const out = work.texts();
  size_t begin = 0;
  work.lanes.present.for_each([&](size_t row) {
    out[row] = std::string_view(bytes).substr(begin, ends[row] - begin);
    begin = ends[row];
  });
  work.fail(too_long, ExpressionFault::kTextTooLong);
  // From the first row without room on, no row has a text.
  if (no_room.any()) work.fail(work.lanes.present - RowMask::first(no_room.front()), ExpressionFault::kTextsTooLong);
}

/// As many bytes of a text as a result may have, and one more.
std::string_view limited(std::string_view text) { return text.substr(0, kMaxComputedText + 1); }

void compute_substring(ComputedLanes& work, std::span<const Argument> arguments) {
  const ColumnLanes &text = arguments[0].lanes, &from = arguments[1].lanes;
  const int64_t* const counts = arguments.size() == 3 ? arguments[2].lanes.keys : nullptr;
  if (counts != nullptr) {
    work.fail(work.lanes.present.filter([&](size_t row) { return counts[row] < 0; }), ExpressionFault::kNegativeLength);
  }
  // A part of a text lies where the text lies.
  std::string_view* const out = work.texts();
  work.lanes.present.for_each([&](size_t row) {
    const auto count = counts == nullptr ? std::nullopt : std::optional(static_cast<int32_t>(counts[row]));
    out[row] = substring_of(text.texts[row], static_cast<int32_t>(from.keys[row]), count);
  });
}

}  // namespace

void compute_text(ComputedLanes& work, std::span<const Argument> arguments, size_t& room) {
  const ColumnLanes& first = arguments[0].lanes;
  switch (work.column.operation) {
    case Operation::kLength:
      work.lanes.present.for_each([&, out = work.keys()](size_t row) { out[row] = length_of(first.texts[row]); });
      break;
    case Operation::kLower:
      make_texts(work, room, [&](size_t row, std::string& bytes) { append_lower(limited(first.texts[row]), bytes); });
      break;
    case Operation::kUpper:
      make_texts(work, room, [&](size_t row, std::string& bytes) { append_upper(limited(first.texts[row]), bytes); });
      break;
    case Operation::kSubstring:
      compute_substring(work, arguments);
      break;
    default:
      make_texts(work, room, [&](size_t row, std::string& bytes) {
        const size_t begin = bytes.size();
        for (const Argument& argument : arguments) {
          bytes += limited(argument.lanes.texts[row]);
          if (bytes.size() - begin > kMaxComputedText) return;
        }
      });
  }
}

void compute_like(ComputedLanes& work, const Argument& text, const Argument& pattern) {
  const std::string_view escape = work.column.constants.front().as_text();
  RowMask wrong, too_long;
  work.lanes.present.for_each([&](size_t row) {
    // Patterns are mostly equal in all rows: one is compiled again only if it differs from the one before.
    const std::string_view now = pattern.lanes.texts[row];
    if (now.size() > kMaxPattern) return too_long.set(row);
    if (!work.pattern || now != work.pattern_text) {
      work.pattern = LikePattern::make(now, escape);
      work.pattern_text = now;
    }
    if (!work.pattern) {
      wrong.set(row);
    } else if (work.pattern->matches(text.lanes.texts[row])) {
      work.lanes.truths.set(row);
    }
  });
  work.fail(wrong, ExpressionFault::kPatternEnds);
  work.fail(too_long, ExpressionFault::kPatternTooLong);
}

void compute_in(ComputedLanes& work, const Argument& a) {
  const ColumnLanes& lanes = a.lanes;
  const auto has = [](const auto& sorted, const auto& value) {
    return std::binary_search(sorted.begin(), sorted.end(), value, std::less<>());
  };
  const auto in = [&](size_t row) {
    if (a.type == FieldType::kBoolean) return has(work.in_keys, int64_t{lanes.truths.test(row)});
    if (is_variable(a.type)) return has(work.in_texts, lanes.texts[row]);
    if (is_float(a.type)) return has(work.in_keys, order_key(lanes.reals[row]));
    return is_long(a.type) ? has(work.in_longs, lanes.whole(row)) : has(work.in_keys, lanes.keys[row]);
  };
  work.lanes.truths = work.lanes.present.filter(in);
}

}  // namespace loam
