// Recognises files that are not UTF-8 text, and names the program that converts them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace loam::cli {

/// A file content that cannot be read as CSV, and how to convert it.
struct ContentConversion {
  std::string content;  ///< its name in messages: "UTF-16 text"
  /// A command that reads the file named by its last argument and writes UTF-8 text or a gzip file to standard output:
  /// "iconv -f UTF-16 -t UTF-8". Empty if no program can; `advice` then says what to do.
  std::string file_filter;
  std::string pipe_filter;  ///< the command that converts standard input instead of a file
  std::string advice;       ///< what the user must do, in words; empty if a program suffices
};

/// recognise_content() needs no more than this number of bytes.
inline constexpr size_t kRecognisedBytes = 512;

/// Recognises a file by its first bytes: UTF-16 and UTF-32 text with and without a byte order mark, zip, spreadsheets,
/// gzip, bzip2, xz, zstd and lz4. Empty for every other content, for example UTF-8 text.
std::optional<ContentConversion> recognise_content(std::string_view beginning);

/// Guesses the encoding of `text`, which is not UTF-8, among the encodings with one byte for each character.
ContentConversion eight_bit_encoding(std::string_view text);

}  // namespace loam::cli
