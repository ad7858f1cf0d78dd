// Width of texts on a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace loam::cli {

/// Number of terminal columns of a text, as wcwidth() counts them: two for a wide character such as those of CJK and
/// most emoji, none for a combining mark or a joiner, one for every other character. A byte that is not UTF-8 counts as
/// one.
size_t display_width(std::string_view text);

/// The text in one line without control characters, which could change the state of a terminal. Control characters and
/// bytes that are not UTF-8 are written as escapes: \n, \t, \x1b.
std::string printable(std::string_view text);

}  // namespace loam::cli
