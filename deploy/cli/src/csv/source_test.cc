#include "deploy/cli/src/csv/source.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/base/env.h"

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
    EXPECT_EQ(source->consumed_bytes(), source->total_bytes());
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

TEST_F(SourceTest, ReadsPlainAndCompressedFilesWithAnyName) {
  const std::string text = noise(50'000);
  EXPECT_EQ(read(write("plain.csv.gz", text)).value(), text);
  EXPECT_EQ(read(write_gzip("compressed.csv", text)).value(), text);
  EXPECT_EQ(read(write("empty.csv", "")).value(), "");
}

TEST_F(SourceTest, ReadsGzipMembersOneAfterAnother) {
  const std::string text = noise(50'000);
  const auto bytes_of = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string first = bytes_of(write_gzip("first", text));
  const std::string second = bytes_of(write_gzip("second", "more"));
  const std::string empty = bytes_of(write_gzip("empty", ""));
  EXPECT_EQ(read(write("both", first + empty + second)).value(), text + "more");
  EXPECT_EQ(read(write("only_empty", empty)).value(), "");
}

/// A pipe, whose reading end is opened by its path.
class PipeTest : public SourceTest {
 protected:
  PipeTest() {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(stop_.data(), O_CLOEXEC), 0);
    waiting_.stop = stop_[0];
  }
  ~PipeTest() override {
    for (const int end : {ends_[0], ends_[1], stop_[0], stop_[1]}) {
      if (end >= 0) close(end);
    }
  }
  void put(std::string_view text) {
    ASSERT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void put_end() { close(std::exchange(ends_[1], -1)); }
  Result<std::unique_ptr<ByteSource>> open() { return open_source("/dev/fd/" + std::to_string(ends_[0]), &waiting_); }
  static Result<std::string> read_once(ByteSource& source) {
    std::string text(1'000, 0);
    LOAM_ASSIGN_OR_RETURN(const size_t got, source.read(text));
    return text.substr(0, got);
  }

  std::array<int, 2> ends_{-1, -1};
  std::array<int, 2> stop_{-1, -1};
  WaitOptions waiting_;
};

TEST_F(PipeTest, ReturnsAvailableBytesWithoutWaiting) {
  put("abc");
  const auto source = open().value();
  EXPECT_EQ(read_once(*source).value(), "abc");
  put("de");
  EXPECT_EQ(read_once(*source).value(), "de");
  put_end();
  EXPECT_EQ(read_once(*source).value(), "");
}

TEST_F(PipeTest, ReturnsAvailableCompressedBytesWithoutWaiting) {
  z_stream stream{};
  ASSERT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  const auto put_compressed = [&](std::string text, int flush) {
    std::string out(1'000, 0);
    stream.next_in = reinterpret_cast<Bytef*>(text.data());
    stream.avail_in = static_cast<unsigned>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<unsigned>(out.size());
    deflate(&stream, flush);
    put(out.substr(0, out.size() - stream.avail_out));
  };
  put_compressed("a,b\n1,2\n", Z_SYNC_FLUSH);
  const auto source = open().value();
  EXPECT_EQ(read_once(*source).value(), "a,b\n1,2\n");
  put_compressed("3,4\n", Z_FINISH);
  deflateEnd(&stream);
  EXPECT_EQ(read_once(*source).value(), "3,4\n");
  put_end();
  EXPECT_EQ(read_once(*source).value(), "");
}

TEST_F(PipeTest, IsStoppedWhileItWaits) {
  put("abc");
  const auto source = open().value();
  EXPECT_EQ(read_once(*source).value(), "abc");
  ASSERT_EQ(::write(stop_[1], "x", 1), 1);
  EXPECT_EQ(read_once(*source).code(), StatusCode::kCancelled);
  EXPECT_EQ(open().code(), StatusCode::kCancelled) << "nor does it wait for the first bytes";
}

TEST_F(PipeTest, IsStoppedWhileAFifoHasNoWriter) {
  const std::string path = directory_ + "/fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ASSERT_EQ(::write(stop_[1], "x", 1), 1);
  EXPECT_EQ(open_source(path, &waiting_).code(), StatusCode::kCancelled);
}

TEST_F(PipeTest, CallsDeadlineHandlerWhileWaiting) {
  put("abc");
  const auto source = open().value();
  EXPECT_EQ(read_once(*source).value(), "abc");
  int calls = 0;
  const uint64_t later_ns = Env::now_ns() + 20'000'000;
  waiting_.deadline_ns = [&] { return calls < 2 ? 1 : later_ns; };
  waiting_.on_deadline = [&] { return ++calls < 3 ? ok_status() : Status(StatusCode::kTimeout, "enough"); };
  EXPECT_EQ(read_once(*source).code(), StatusCode::kTimeout);
  EXPECT_EQ(calls, 3);
  put("de");
  waiting_.deadline_ns = nullptr;
  EXPECT_EQ(read_once(*source).value(), "de") << "a later read goes on";
}

TEST_F(SourceTest, PrependReturnsReadAheadBytesAgain) {
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
