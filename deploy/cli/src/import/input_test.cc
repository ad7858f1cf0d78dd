#include "deploy/cli/src/import/input.h"

#include <array>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace loam::cli {
namespace {

/// Inputs that are pipes: what a writer gave, and whether it has ended, is up to each test.
class InputTest : public ::testing::Test {
 protected:
  InputTest() {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(stop_.data(), O_CLOEXEC), 0);
  }
  ~InputTest() override {
    for (const int end : {ends_[0], ends_[1], stop_[0], stop_[1]}) {
      if (end >= 0) close(end);
    }
  }

  void put(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = write(ends_[1], text.data(), text.size());
      ASSERT_GT(written, 0);
      text.remove_prefix(static_cast<size_t>(written));
    }
  }
  void put_end() { close(std::exchange(ends_[1], -1)); }
  Result<std::unique_ptr<Input>> open() { return Input::open("/dev/fd/" + std::to_string(ends_[0]), stop_[0]); }

  static std::string read_all(ByteSource& source) {
    std::string text;
    std::array<char, 1'000> buffer{};
    for (;;) {
      const auto got = source.read(buffer);
      EXPECT_TRUE(got.ok()) << got.status().to_string();
      if (!got.ok() || *got == 0) return text;
      text.append(buffer.data(), *got);
    }
  }
  static std::unique_ptr<ByteSource> rows(Input& input) { return input.rows(nullptr, nullptr); }

  std::array<int, 2> ends_{-1, -1};
  std::array<int, 2> stop_{-1, -1};
};

TEST_F(InputTest, ReadsShortPipeThreeTimes) {
  put("a,b\n1,2\n");
  put_end();
  const auto input = open().value();
  EXPECT_EQ(input->beginning(), "a,b\n1,2\n");
  EXPECT_TRUE(input->beginning_is_all());
  EXPECT_EQ(read_all(*input->sample([] { return true; }).value()), "a,b\n1,2\n");
  EXPECT_TRUE(input->sample_is_all());
  EXPECT_EQ(read_all(*rows(*input)), "a,b\n1,2\n");
}

TEST_F(InputTest, DoesNotWaitForTheEndOfASlowPipe) {
  put("a,b\n1,2\n3");
  const auto input = open().value();  // the pipe stays open: this would never return
  EXPECT_EQ(input->beginning(), "a,b\n1,2\n3");
  EXPECT_FALSE(input->beginning_is_all());
  EXPECT_EQ(read_all(*input->sample([] { return true; }).value()), "a,b\n1,2\n3");
  EXPECT_FALSE(input->sample_is_all());
  const auto source = rows(*input);
  put(",4\n");
  put_end();
  EXPECT_EQ(read_all(*source), "a,b\n1,2\n3,4\n");
}

TEST_F(InputTest, WaitsForFirstRowOfSample) {
  put("a,\"b\nb\nb\"\n");  // a header alone, though it has lines
  const auto input = open().value();
  bool has_row = false;
  const auto sample = input->sample([&] { return has_row; }).value();
  std::array<char, 100> buffer{};
  EXPECT_EQ(sample->read(buffer).value(), 10u);
  // No row: the sample goes on when there is more, however late.
  put("1,2\n");
  EXPECT_EQ(sample->read(buffer).value(), 4u);
  has_row = true;
  EXPECT_EQ(sample->read(buffer).value(), 0u);
  EXPECT_FALSE(input->sample_is_all());
}

TEST_F(InputTest, LimitsTheSample) {
  const std::string text(kSampleBytes + 100'000, 'x');
  std::thread writer([&] {
    put(text);
    put_end();
  });
  const auto input = open().value();
  EXPECT_EQ(input->beginning().size(), kBeginningBytes);
  EXPECT_EQ(read_all(*input->sample([] { return false; }).value()).size(), kSampleBytes);
  EXPECT_FALSE(input->sample_is_all());
  EXPECT_EQ(read_all(*rows(*input)), text);
  writer.join();
}

TEST_F(InputTest, IsStoppedAtEveryStep) {
  put("a,b\n1,2\n");
  const auto input = open().value();
  ASSERT_EQ(write(stop_[1], "x", 1), 1);
  const auto sample = input->sample([] { return false; }).value();
  std::array<char, 100> buffer{};
  EXPECT_EQ(sample->read(buffer).value(), 8u) << "it was read before";
  EXPECT_EQ(sample->read(buffer).code(), StatusCode::kCancelled);
  const auto source = rows(*input);
  EXPECT_EQ(source->read(buffer).value(), 8u);
  EXPECT_EQ(source->read(buffer).code(), StatusCode::kCancelled);
  EXPECT_EQ(open().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace loam::cli
