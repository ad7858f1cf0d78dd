// What a file holds that is no UTF-8 text, and the program that makes UTF-8 text of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace loam::cli {

/// A content that cannot be read as CSV, and how to convert it.
struct ContentConversion {
  std::string content;  ///< for messages: "UTF-16 text"
  /// A program that writes UTF-8 text or a gzip file to its standard output: "iconv -f UTF-16 -t UTF-8". It reads the
  /// file that is its last argument. Empty: no program does, `advice` says what to do.
  std::string file_filter;
  std::string pipe_filter;  ///< the same for a program that reads its standard input
  std::string advice;       ///< in words; empty if a program is enough
};

/// Bytes that recognise_content() looks at.
inline constexpr size_t kRecognisedBytes = 512;

/// Recognises contents by the first bytes of a file: UTF-16 and UTF-32 text with and without a byte order mark, zip,
/// spreadsheets, gzip, bzip2, xz, zstd and lz4. Nothing for all others, UTF-8 text among them.
std::optional<ContentConversion> recognise_content(std::string_view beginning);

/// The likely encoding of `text`, which is not UTF-8: one with a byte for each character.
ContentConversion eight_bit_encoding(std::string_view text);

}  // namespace loam::cli
