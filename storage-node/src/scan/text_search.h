// Pieces of text in short texts.
#pragma once

#include <string_view>

namespace loam::storage {

/// `text` has `piece` in it, bytewise. For texts of a few dozen bytes: 32 places at a time are tried by the piece's
/// first and last byte, and only where both fit is the rest compared [Mula, SIMD-friendly algorithms for substring
/// searching]. It sets up nothing, as the searches of the libraries do.
bool contains(std::string_view text, std::string_view piece);

}  // namespace loam::storage
