// Functions of texts in UTF-8. Their results are UTF-8 if their arguments are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loam {

/// The number of characters.
int32_t length_of(std::string_view text);

/// The characters from number `from` on, which counts from 1 and may be below; with `count`, those up to from + count.
/// `count` is not negative. A view into the text.
std::string_view substring_of(std::string_view text, int32_t from, std::optional<int32_t> count);

/// Appends the text in lower or upper case to `out`: each character as the C library's locale C.UTF-8 maps it, as
/// PostgreSQL does under that locale.
/// @{
void append_lower(std::string_view text, std::string& out);
void append_upper(std::string_view text, std::string& out);
/// @}

/// A pattern of LIKE: % stands for any characters, _ for one, and the character behind the escape for itself.
class LikePattern {
 public:
  /// Nothing: the pattern ends with the escape. `escape` is one character, or empty.
  static std::optional<LikePattern> make(std::string_view pattern, std::string_view escape);

  /// Whether the whole text matches.
  bool matches(std::string_view text) const;

 private:
  /// A piece of the pattern behind a %: characters and, as nothing, places for one character.
  using Piece = std::vector<std::optional<std::string>>;

  /// Whether the piece matches at the begin of the text; removes what it matched.
  static bool take(const Piece& piece, std::string_view& text);
  /// Whether the piece, which is not empty, matches anywhere in the text; removes what comes before and what it
  /// matched.
  static bool find(const Piece& piece, std::string_view& text);

  std::vector<Piece> pieces_;   // the first has no % before it
  size_t last_characters_ = 0;  // the number of characters that the last piece matches
};

}  // namespace loam
