// How much room a text takes on a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace loam::cli {

/// Columns on a terminal that the text takes, as wcwidth() counts them: two for a wide character such as those of CJK
/// and most emoji, none for a combining mark or a joiner, one for everything else. A byte that is no UTF-8 counts as
/// one.
size_t display_width(std::string_view text);

/// The text in one line that does nothing to a terminal: control characters and bytes that are no UTF-8 become \n, \t,
/// \x1b and the like.
std::string printable(std::string_view text);

}  // namespace loam::cli
