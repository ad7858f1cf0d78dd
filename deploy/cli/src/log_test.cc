// `loam log inspect`, run in this process.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <loam/commit/log_format.h>

#include "deploy/cli/src/command_line.h"
#include "deploy/cli/src/exit_codes.h"

namespace loam::cli {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};

struct LogTest : ::testing::Test {
  LogTest() {
    std::string name = (fs::temp_directory_path() / "loam_cli_log_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    folder = name;
    path = folder / "commit-log";
    commit::encode_checkpoint(
        {.committed = {{TransactionId(3), TransactionId(5)}, {TransactionId(8), TransactionId(8)}},
         .truncated_up_to = TransactionId(2),
         .end = 1'200},
        7, bytes);
    uint64_t chain = 7;
    commit::encode_batch(std::vector{TransactionId(6), TransactionId(10)}, chain, bytes);
    commit::encode_batch(std::vector{TransactionId(11)}, chain, bytes);
  }
  ~LogTest() override { fs::remove_all(folder); }

  Outcome inspect(std::vector<std::string> words) {
    std::ofstream file(path, std::ios::binary);
    file << as_text(bytes);
    file.close();
    words.insert(words.begin(), {"loam", "log", "inspect"});
    std::vector<const char*> arguments;
    for (const std::string& word : words) arguments.push_back(word.c_str());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    CommandLine line;
    Outcome outcome;
    outcome.code = line.run(static_cast<int>(arguments.size()), arguments.data());
    outcome.out = ::testing::internal::GetCapturedStdout();
    outcome.err = ::testing::internal::GetCapturedStderr();
    return outcome;
  }
  nlohmann::json inspect_json(std::vector<std::string> words) {
    words.emplace_back("--json");
    const Outcome outcome = inspect(std::move(words));
    EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  }

  fs::path folder;
  fs::path path;
  Buffer bytes;
};

TEST_F(LogTest, PrintsContentOfLog) {
  const Outcome outcome = inspect({path.string()});
  EXPECT_EQ(outcome.code, kExitOk);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out, path.string() +
                             ": a commit log of format 1, 71 bytes\n"
                             "checkpoint 44 bytes: 1,200 commits until then; 4 ids in 2 ranges; truncated up to id 2\n"
                             "batches    2, with 3 commits: 1,203 commits in all\n"
                             "committed  7 ids in 3 ranges, from 3 to 11\n"
                             "tail       ends with a whole log record\n");
  const std::string ranges = inspect({path.string(), "--ranges"}).out;
  EXPECT_TRUE(ranges.ends_with("a whole log record\n3-6\n8\n10-11\n")) << ranges;
}

TEST_F(LogTest, PrintsJson) {
  const nlohmann::json log = inspect_json({path.string(), "--ranges"});
  EXPECT_EQ(log["path"], path.string());
  EXPECT_EQ(log["bytes"], bytes.size());
  EXPECT_EQ(log["checkpoint"]["end"], 1'200);
  EXPECT_EQ(log["checkpoint"]["truncated_up_to"], 2);
  EXPECT_EQ(log["checkpoint"]["ranges"], 2);
  EXPECT_EQ(log["checkpoint"]["ids"], 4);
  EXPECT_EQ(log["batches"], 2);
  EXPECT_EQ(log["commits"], 3);
  EXPECT_EQ(log["end"], 1'203);
  EXPECT_EQ(log["committed"]["ranges"], 3);
  EXPECT_EQ(log["committed"]["ids"], 7);
  EXPECT_EQ(log["valid_bytes"], bytes.size());
  EXPECT_EQ(log["tail"], "clean");
  EXPECT_EQ(log["ranges"].dump(), "[[3,6],[8,8],[10,11]]");
  EXPECT_FALSE(inspect_json({path.string()}).contains("ranges"));
}

TEST_F(LogTest, AcceptsFolderOfCommitManager) { EXPECT_EQ(inspect_json({folder.string()})["path"], path.string()); }

TEST_F(LogTest, ReportsDamagedTailWithoutChangingFile) {
  const size_t whole = bytes.size();
  bytes.resize(whole + 20);
  EXPECT_EQ(inspect_json({path.string()})["tail"], "zero-filled");
  bytes.back() = std::byte{1};
  EXPECT_EQ(inspect_json({path.string()})["tail"], "damaged");
  bytes.resize(whole - 1);
  const nlohmann::json log = inspect_json({path.string()});
  EXPECT_EQ(log["tail"], "torn");
  EXPECT_EQ(log["end"], 1'202);
  EXPECT_EQ(log["valid_bytes"], whole - 13);
  const Outcome outcome = inspect({path.string()});
  EXPECT_NE(outcome.out.find("ends within a log record"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("58 bytes are valid, 12 are not"), std::string::npos) << outcome.out;
  EXPECT_EQ(fs::file_size(path), whole - 1);
}

TEST_F(LogTest, RejectsFileThatIsNoLog) {
  bytes[30] ^= std::byte{1};
  const Outcome damaged = inspect({path.string()});
  EXPECT_EQ(damaged.code, kExitBadData);
  EXPECT_NE(damaged.err.find("the checksum of its checkpoint is wrong"), std::string::npos) << damaged.err;
  const Outcome missing = inspect({(folder / "missing").string(), "--json"});
  EXPECT_EQ(missing.code, kExitFailed);
  EXPECT_NE(missing.err.find("missing cannot be read: No such file"), std::string::npos) << missing.err;
  EXPECT_EQ(inspect({}).code, kExitUsage);
}

}  // namespace
}  // namespace loam::cli
