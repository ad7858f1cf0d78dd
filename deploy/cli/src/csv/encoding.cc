// Recognises other encodings and file formats by their first bytes. Each result names the command that converts the
// content.
#include "deploy/cli/src/csv/encoding.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace loam::cli {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kZipMagic = "PK\x03\x04"sv;

struct Magic {
  std::string_view bytes;
  std::string_view content;
  std::string_view filter;  // command for a file and for the standard input
};

// UTF-32 comes before UTF-16, because its byte order mark begins with that of UTF-16.
constexpr std::array kMagics = {
    Magic{"\xff\xfe\0\0"sv, "UTF-32 text", "iconv -f UTF-32 -t UTF-8"},
    Magic{"\0\0\xfe\xff"sv, "UTF-32 text", "iconv -f UTF-32 -t UTF-8"},
    Magic{"\xff\xfe"sv, "UTF-16 text", "iconv -f UTF-16 -t UTF-8"},
    Magic{"\xfe\xff"sv, "UTF-16 text", "iconv -f UTF-16 -t UTF-8"},
    Magic{"\x1f\x8b"sv, "a gzip file inside another one", "gzip -dc"},
    Magic{"\xfd\x37zXZ\0"sv, "an xz file", "xz -dc"},
    Magic{"\x28\xb5\x2f\xfd"sv, "a zstd file", "zstd -dc"},
    Magic{"\x04\x22\x4d\x18"sv, "an lz4 file", "lz4 -dc"},
};

ContentConversion make_conversion(std::string_view content, std::string_view file_filter, std::string_view pipe_filter,
                                  std::string_view advice) {
  ContentConversion conversion;
  conversion.content = content;
  conversion.file_filter = file_filter;
  conversion.pipe_filter = pipe_filter;
  conversion.advice = advice;
  return conversion;
}

ContentConversion by_filter(std::string_view content, std::string_view filter) {
  return make_conversion(content, filter, filter, "");
}

// The name of a zip archive's first member.
std::string_view first_member(std::string_view archive) {
  constexpr size_t kLengthAt = 26;
  constexpr size_t kNameAt = 30;
  if (archive.size() < kNameAt) return "";
  const size_t low = static_cast<unsigned char>(archive[kLengthAt]);
  const size_t high = static_cast<unsigned char>(archive[kLengthAt + 1]);
  return archive.substr(kNameAt, low | high << 8u);
}

ContentConversion zip(std::string_view archive) {
  const std::string_view member = first_member(archive);
  // These names begin the archives of Office Open XML and OpenDocument.
  for (const std::string_view name : {"[Content_Types].xml", "_rels/", "docProps/", "xl/", "mimetype"}) {
    if (!member.starts_with(name)) continue;
    return make_conversion("a spreadsheet", "", "", "save it as CSV in UTF-8 with a spreadsheet program");
  }
  return make_conversion("a zip archive", "unzip -p", "funzip", "if the table is the only file in it");
}

// "BZh" alone could be the begin of a column name, so the test includes the level and the number of the first block.
bool is_bzip2(std::string_view beginning) {
  constexpr size_t kBlockAt = 4;
  return beginning.starts_with("BZh") && beginning.substr(std::min(beginning.size(), kBlockAt)).starts_with("1AY&SY");
}

// Recognises text without a byte order mark: the first characters of a header are usually ASCII.
std::optional<ContentConversion> wide_text(std::string_view text) {
  constexpr size_t kLooked = 4;
  if (text.size() < kLooked) return std::nullopt;
  const auto zeros_at = [&](size_t first) { return text[first] == '\0' && text[first + 2] == '\0'; };
  const auto ascii_at = [&](size_t first) {
    return std::max(text[first], text[first + 2]) > 0 && std::min(text[first], text[first + 2]) > 0;
  };
  if (ascii_at(0) && zeros_at(1)) return by_filter("UTF-16 text", "iconv -f UTF-16LE -t UTF-8");
  if (zeros_at(0) && ascii_at(1)) return by_filter("UTF-16 text", "iconv -f UTF-16BE -t UTF-8");
  return std::nullopt;
}

}  // namespace

std::optional<ContentConversion> recognise_content(std::string_view beginning) {
  if (beginning.starts_with(kZipMagic)) return zip(beginning);
  for (const Magic& magic : kMagics) {
    if (beginning.starts_with(magic.bytes)) return by_filter(magic.content, magic.filter);
  }
  if (is_bzip2(beginning)) return by_filter("a bzip2 file", "bzip2 -dc");
  return wide_text(beginning);
}

ContentConversion eight_bit_encoding(std::string_view text) {
  // From 0x80 to 0x9f ISO-8859-1 has control characters, and Windows-1252 has letters and quotation marks.
  const bool windows = std::ranges::any_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 && byte <= 0x9f;
  });
  const std::string_view encoding = windows ? "WINDOWS-1252" : "ISO-8859-1";
  return by_filter(fmt::format("{} text", encoding), fmt::format("iconv -f {} -t UTF-8", encoding));
}

}  // namespace loam::cli
