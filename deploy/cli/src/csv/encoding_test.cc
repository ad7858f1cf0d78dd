#include "deploy/cli/src/csv/encoding.h"

#include <gtest/gtest.h>

namespace loam::cli {
namespace {

using std::string_literals::operator""s;
using std::string_view_literals::operator""sv;

std::string filter(std::string_view beginning) {
  const auto found = recognise_content(beginning);
  return found ? found->file_filter : "none";
}

TEST(Encoding, RecognisesTextThatIsNotUtf8) {
  EXPECT_EQ(filter("\xff\xfe"
                   "a\0,\0"sv),
            "iconv -f UTF-16 -t UTF-8");
  EXPECT_EQ(filter("\xfe\xff\0a\0,"sv), "iconv -f UTF-16 -t UTF-8");
  EXPECT_EQ(filter("a\0,\0b\0"sv), "iconv -f UTF-16LE -t UTF-8");
  EXPECT_EQ(filter("\0a\0,\0b"sv), "iconv -f UTF-16BE -t UTF-8");
  EXPECT_EQ(filter("\xff\xfe\0\0a\0\0\0"sv), "iconv -f UTF-32 -t UTF-8");
  EXPECT_EQ(filter("\0\0\xfe\xff\0\0\0a"sv), "iconv -f UTF-32 -t UTF-8");
}

TEST(Encoding, RecognisesCompressedFiles) {
  EXPECT_EQ(filter("\x1f\x8b\x08"sv), "gzip -dc") << "what gzip gave is gzip again";
  EXPECT_EQ(filter("BZh91AY&SY"), "bzip2 -dc");
  EXPECT_EQ(filter("\xfd\x37zXZ\0\0"sv), "xz -dc");
  EXPECT_EQ(filter("\x28\xb5\x2f\xfd\x04"sv), "zstd -dc");
  EXPECT_EQ(filter("\x04\x22\x4d\x18\x64"sv), "lz4 -dc");
  const std::string header = "PK\x03\x04" + std::string(22, 'x');
  const auto archive = recognise_content(header + "\x05"s.append(1, '\0') + "xx" + "a.csvrest").value();
  EXPECT_EQ(archive.file_filter, "unzip -p");
  EXPECT_EQ(archive.pipe_filter, "funzip");
  const auto sheet = recognise_content(header + "\x0b"s.append(1, '\0') + "xx" + "_rels/.relsrest").value();
  EXPECT_EQ(sheet.content, "a spreadsheet");
  EXPECT_EQ(sheet.file_filter, "");
  EXPECT_NE(sheet.advice, "");
  EXPECT_EQ(recognise_content("PK\x03\x04")->content, "a zip archive") << "no more than the first bytes";
}

TEST(Encoding, LeavesUtf8Alone) {
  for (const std::string_view text : {""sv, "a"sv, "a,b\n1,2\n"sv,
                                      "\xef\xbb\xbf"
                                      "a,b\n"sv,
                                      "\xc3\xa9t\xc3\xa9,b\n"sv, "a\0b,c\n"sv, "BZhours,b\n"sv}) {
    EXPECT_EQ(filter(text), "none") << text;
  }
}

TEST(Encoding, GuessesTheEncodingOfBytes) {
  EXPECT_EQ(eight_bit_encoding("caf\xe9").file_filter, "iconv -f ISO-8859-1 -t UTF-8");
  EXPECT_EQ(eight_bit_encoding("\x80 5").file_filter, "iconv -f WINDOWS-1252 -t UTF-8") << "a euro sign";
}

}  // namespace
}  // namespace loam::cli
