// Decodes UTF-8 character by character and looks up the width of each in the tables of width_tables.h.
#include "deploy/cli/src/output/display_width.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "deploy/cli/src/output/width_tables.h"

namespace loam::cli {
namespace {

/// The first character of a text.
struct Character {
  uint32_t code_point = 0;
  size_t bytes = 1;
  bool valid = false;  ///< else it is one byte that is no UTF-8
};

/// `text` is not empty.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  // The lead byte gives the length. 0x80 to 0xc1 begin no character: they continue one, or would encode ASCII in two
  // bytes.
  const size_t bytes = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (bytes == 0 || bytes > text.size()) return {};
  uint32_t code_point = lead & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code_point = code_point << 6 | (byte(i) & 0x3fU);
  }
  const bool overlong = (bytes == 3 && code_point < 0x800) || (bytes == 4 && code_point < 0x10000);
  if (overlong || code_point > 0x10ffff || (code_point >= 0xd800 && code_point <= 0xdfff)) return {};
  return {code_point, bytes, true};
}

bool contains(std::span<const CodePointRange> ranges, uint32_t code_point) {
  // The only range that may contain the code point is the last one that begins at or below it.
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code_point,
                                      [](uint32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

size_t width_of(uint32_t code_point) {
  if (code_point < kZeroWidth.front().first) return 1;
  if (contains(kZeroWidth, code_point)) return 0;
  return contains(kDoubleWidth, code_point) ? 2 : 1;
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const Character character = first_character(text);
    columns += character.valid ? width_of(character.code_point) : 1;
    text.remove_prefix(character.bytes);
  }
  return columns;
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Character character = first_character(text);
    const uint32_t code_point = character.code_point;
    if (!character.valid) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (code_point == '\n') {
      result += "\\n";
    } else if (code_point == '\t') {
      result += "\\t";
    } else if (code_point < 0x20 || code_point == 0x7f) {
      result += fmt::format("\\x{:02x}", code_point);
    } else if (code_point >= 0x80 && code_point < 0xa0) {
      result += fmt::format("\\u{:04x}", code_point);  // some terminals execute these control characters
    } else {
      result += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes);
  }
  return result;
}

}  // namespace loam::cli
