#include "deploy/cli/src/csv/source.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <zlib.h>

namespace loam::cli {
namespace {

class SourceTest : public ::testing::Test {
 protected:
  SourceTest() {
    std::string pattern = ::testing::TempDir() + "loam_source_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~SourceTest() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string write_gzip(const std::string& name, const std::string& text) {
    const std::string path = directory_ + "/" + name;
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return path;
  }
  static Result<std::string> read(const std::string& path) {
    LOAM_ASSIGN_OR_RETURN(auto source, open_source(path));
    std::string text;
    std::vector<char> buffer(1'000);
    for (;;) {
      LOAM_ASSIGN_OR_RETURN(const size_t got, source->read(buffer));
      if (got == 0) break;
      text.append(buffer.data(), got);
    }
    EXPECT_EQ(source->taken_bytes(), source->total_bytes());
    return text;
  }

  std::string directory_;
};

std::string noise(size_t size) {
  std::string text;
  for (uint64_t x = 88172645463325252u; text.size() < size;) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    text += static_cast<char>(x);
  }
  return text;
}

TEST_F(SourceTest, ReadsPlainAndCompressedFilesWhateverTheirName) {
  const std::string text = noise(50'000);
  EXPECT_EQ(read(write("plain.csv.gz", text)).value(), text);
  EXPECT_EQ(read(write_gzip("compressed.csv", text)).value(), text);
  EXPECT_EQ(read(write("empty.csv", "")).value(), "");
}

TEST_F(SourceTest, GivesWhatWasReadAheadOnceMore) {
  auto source = prepend("abc", source_of_text("defgh", 2));
  std::string text;
  std::vector<char> buffer(2);
  while (const size_t got = source->read(buffer).value()) text.append(buffer.data(), got);
  EXPECT_EQ(text, "abcdefgh");
}

TEST_F(SourceTest, NamesTheFileThatCannotBeOpened) {
  const std::string path = directory_ + "/none.csv";
  EXPECT_EQ(open_source(path).status().to_string(),
            "kNotFound: " + path + " cannot be opened: No such file or directory");
  EXPECT_EQ(open_source(directory_).status().to_string(), "kNotFound: " + directory_ + " is a directory, not a file");
}

TEST_F(SourceTest, ReportsATruncatedAndADamagedFile) {
  const std::string path = write_gzip("a.gz", noise(50'000));
  std::ifstream file(path, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  const std::string cut = write("cut.gz", bytes.substr(0, bytes.size() / 2));
  EXPECT_EQ(read(cut).status().to_string(),
            "kMalformed: " + cut + " cannot be read: the compressed data ends too early; the file is truncated");
  bytes[bytes.size() - 6] ^= 1;  // in the checksum
  const std::string damaged = write("damaged.gz", bytes);
  EXPECT_EQ(read(damaged).code(), StatusCode::kMalformed);
  EXPECT_NE(read(damaged).status().message().find(damaged + " cannot be read: "), std::string::npos);
}

}  // namespace
}  // namespace loam::cli
