// Characters are sequences of UTF-8: a byte that does not continue a sequence begins a character.
#include "common/expression/texts.h"

#include <algorithm>
#include <clocale>
#include <cwctype>
#include <limits>
#include <utility>

#include "common/base/assert.h"

namespace loam {
namespace {

bool begins_character(char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }

/// The size of the first character of a text that is not empty.
size_t first_character(std::string_view text) {
  size_t size = 1;
  while (size < text.size() && !begins_character(text[size])) ++size;
  return size;
}

/// Removes up to `count` characters from the front of the text, and returns them.
std::string_view take_characters(std::string_view& text, int64_t count) {
  size_t end = 0;
  for (; count > 0 && end < text.size(); --count) end += first_character(text.substr(end));
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end);
  return taken;
}

/// Removes all but the last `count` characters of the text. Returns whether it has as many.
bool keep_last(std::string_view& text, size_t count) {
  size_t begin = text.size();
  for (; count != 0 && begin != 0; count -= begins_character(text[begin]) ? 1 : 0) --begin;
  text.remove_prefix(begin);
  return count == 0;
}

wchar_t decoded(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(character[i]); };
  switch (character.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
    case 3:
      return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  }
}

void append_encoded(wint_t code, std::string& out) {
  const auto put = [&](wint_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

locale_t unicode() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  LOAM_CHECK(locale != nullptr, "the C library has the locale C.UTF-8");
  return locale;
}

template <class Map>
void append_mapped(std::string_view text, std::string& out, char from, char to, Map map) {
  while (!text.empty()) {
    const std::string_view character = take_characters(text, 1);
    if (character.size() > 1) {
      append_encoded(map(static_cast<wint_t>(decoded(character)), unicode()), out);
    } else {
      const char c = character.front();
      out.push_back(c >= from && c <= to ? static_cast<char>(c ^ 0x20) : c);
    }
  }
}

}  // namespace

int32_t length_of(std::string_view text) { return static_cast<int32_t>(std::ranges::count_if(text, begins_character)); }

std::string_view substring_of(std::string_view text, int32_t from, std::optional<int32_t> count) {
  const int64_t end = count ? int64_t{from} + *count : std::numeric_limits<int64_t>::max();
  const int64_t begin = std::max<int64_t>(from, 1);
  take_characters(text, begin - 1);
  return take_characters(text, end - begin);
}

void append_lower(std::string_view text, std::string& out) { append_mapped(text, out, 'A', 'Z', towlower_l); }
void append_upper(std::string_view text, std::string& out) { append_mapped(text, out, 'a', 'z', towupper_l); }

std::optional<LikePattern> LikePattern::make(std::string_view pattern, std::string_view escape) {
  LikePattern made;
  made.pieces_.emplace_back();
  while (!pattern.empty()) {
    std::string_view character = take_characters(pattern, 1);
    if (!escape.empty() && character == escape) {
      if (pattern.empty()) return std::nullopt;
      character = take_characters(pattern, 1);
    } else if (character == "%") {
      made.pieces_.emplace_back();
      continue;
    } else if (character == "_") {
      made.pieces_.back().emplace_back(std::nullopt);
      continue;
    }
    // Characters without a place for one between them are compared together.
    Piece& piece = made.pieces_.back();
    if (piece.empty() || !piece.back()) piece.emplace_back(std::string());
    *piece.back() += character;
  }
  for (const auto& part : made.pieces_.back()) {
    made.last_characters_ += part ? static_cast<size_t>(length_of(*part)) : 1;
  }
  return made;
}

bool LikePattern::take(const Piece& piece, std::string_view& text) {
  for (const auto& part : piece) {
    if (part && !text.starts_with(*part)) return false;
    if (!part && text.empty()) return false;
    text.remove_prefix(part ? part->size() : first_character(text));
  }
  return true;
}

bool LikePattern::find(const Piece& piece, std::string_view& text) {
  for (;;) {
    if (piece.front()) text.remove_prefix(std::min(text.find(*piece.front()), text.size()));
    std::string_view rest = text;
    if (take(piece, rest)) {
      text = rest;
      return true;
    }
    if (text.empty()) return false;
    text.remove_prefix(first_character(text));
  }
}

bool LikePattern::matches(std::string_view text) const {
  if (!take(pieces_.front(), text)) return false;
  if (pieces_.size() == 1) return text.empty();
  // Each piece matches as early as it can, which leaves most for the pieces behind it. The last one ends with the text.
  for (size_t i = 1; i + 1 < pieces_.size(); ++i) {
    if (!pieces_[i].empty() && !find(pieces_[i], text)) return false;
  }
  return keep_last(text, last_characters_) && take(pieces_.back(), text);
}

}  // namespace loam
