#include "deploy/cli/src/bundle/archive_writer.h"

#include <filesystem>
#include <map>
#include <memory>

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace loam::cli {
namespace {

class ArchiveWriterTest : public ::testing::Test {
 protected:
  ~ArchiveWriterTest() override { std::filesystem::remove(path_); }

  // The files of the archive, by their names.
  std::map<std::string, std::string> read() const {
    std::map<std::string, std::string> files;
    const std::unique_ptr<archive, decltype(&archive_read_free)> reader(archive_read_new(), &archive_read_free);
    archive_read_support_filter_gzip(reader.get());
    archive_read_support_format_tar(reader.get());
    EXPECT_EQ(archive_read_open_filename(reader.get(), path_.c_str(), 4'096), ARCHIVE_OK);
    archive_entry* entry = nullptr;
    while (archive_read_next_header(reader.get(), &entry) == ARCHIVE_OK) {
      std::string content(static_cast<size_t>(archive_entry_size(entry)), '\0');
      EXPECT_EQ(archive_read_data(reader.get(), content.data(), content.size()),
                static_cast<la_ssize_t>(content.size()));
      files[archive_entry_pathname(entry)] = content;
    }
    return files;
  }

  const std::string path_ =
      std::filesystem::temp_directory_path() / ("loam_archive_" + std::to_string(::getpid()) + ".tar.gz");
};

TEST_F(ArchiveWriterTest, WritesWhatAReaderFinds) {
  const std::string large(3'000'000, 'x');
  {
    auto writer = ArchiveWriter::open(path_);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    ASSERT_TRUE((*writer)->add("b/one.txt", "1\n").ok());
    ASSERT_TRUE((*writer)->add("b/empty", "").ok());
    ASSERT_TRUE((*writer)->add("b/large", large).ok());
    const auto size = (*writer)->finish();
    ASSERT_TRUE(size.ok()) << size.status().to_string();
    EXPECT_EQ(*size, std::filesystem::file_size(path_));
  }
  EXPECT_EQ(read(), (std::map<std::string, std::string>{{"b/one.txt", "1\n"}, {"b/empty", ""}, {"b/large", large}}));
  EXPECT_EQ(std::filesystem::status(path_).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(ArchiveWriterTest, RemovesAnIncompleteFile) {
  {
    auto writer = ArchiveWriter::open(path_);
    ASSERT_TRUE(writer.ok() && (*writer)->add("one", "1").ok());
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ArchiveWriterTest, ReportsAFileThatCannotBeOpened) {
  const auto writer = ArchiveWriter::open("/dev/null/bundle");
  EXPECT_EQ(writer.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(writer.status().message().find("/dev/null/bundle"), std::string_view::npos);
}

TEST_F(ArchiveWriterTest, ReportsAFullDisk) {
  auto writer = ArchiveWriter::open("/dev/full");
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  Status status = (*writer)->add("one", "1");
  if (status.ok()) status = (*writer)->finish().status();
  EXPECT_EQ(status.code(), StatusCode::kNoSpace);
  EXPECT_NE(status.message().find("No space left on device"), std::string_view::npos) << status.to_string();
  EXPECT_TRUE(std::filesystem::exists("/dev/full")) << "only a file that open() has created is removed";
}

}  // namespace
}  // namespace loam::cli
