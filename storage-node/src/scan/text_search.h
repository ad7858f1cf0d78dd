// Substring search in short texts.
#pragma once

#include <string_view>

namespace loam::storage {

/// Returns whether `text` contains the bytes of `piece`. Made for texts of a few dozen bytes: the search compares the
/// first and the last byte of the piece at 32 places at a time, and compares the rest only where both match [Mula,
/// SIMD-friendly algorithms for substring searching]. Unlike the searches of libraries it needs no preparation.
bool contains(std::string_view text, std::string_view piece);

}  // namespace loam::storage
