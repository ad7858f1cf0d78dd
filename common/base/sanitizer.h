// Whether a sanitizer watches this build.
#pragma once

namespace loam {

/// Whether AddressSanitizer or ThreadSanitizer handles the signals and maps the memory of this build.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace loam
