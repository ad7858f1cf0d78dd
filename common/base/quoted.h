// Texts in files and replies that other programs read.
#pragma once

#include <string>
#include <string_view>

namespace loam {

/// Returns the text in double quotes, with escapes that JSON and TOML both read. The text is UTF-8; other bytes stay as
/// they are.
inline std::string quoted(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out += {kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace loam
