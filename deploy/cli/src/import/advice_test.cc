#include "deploy/cli/src/import/advice.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace loam::cli {
namespace {

/// What a shell command writes to its standard output.
std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> buffer{};
  while (const size_t got = fread(buffer.data(), 1, buffer.size(), pipe.get())) text.append(buffer.data(), got);
  return text;
}

/// Files that are no CSV in UTF-8, made by the programs that make such files; a test passes over those that this
/// machine lacks. Instead of `loam import` the commands run `cat`.
class AdviceTest : public ::testing::Test {
 protected:
  AdviceTest() {
    std::string pattern = ::testing::TempDir() + "loam_advice_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    plain_ = directory_ + "/-it's a table.csv";
    std::ofstream(plain_, std::ios::binary) << kText;
    options_.table = "t";
    options_.command = [](std::span<const OptionValues> instead) {
      EXPECT_EQ(instead.back().name, "file");
      EXPECT_EQ(instead.back().values, std::vector<std::string>{"-"});
      return "cat";
    };
  }
  ~AdviceTest() override { std::filesystem::remove_all(directory_); }

  static bool has(const std::string& program) {
    return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
  }

  // Runs the command that is printed for the file that `maker` writes of the plain one to its standard output.
  void try_advice(const std::string& program, const std::string& maker) {
    if (!has(program)) {
      std::printf("without %s\n", program.c_str());
      return;
    }
    options_.path = directory_ + "/odd 'name'";
    ASSERT_EQ(std::system(("cd " + directory_ + "; " + maker + " > " + shell_word(options_.path)).c_str()), 0) << maker;
    std::ifstream file(options_.path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    ASSERT_FALSE(bytes.empty()) << maker;
    const auto found = recognise_content(bytes);
    ASSERT_TRUE(found) << maker;
    EXPECT_EQ(output_of(command_for(*found)), kText) << command_for(*found);
    const std::string path = std::exchange(options_.path, "-");
    EXPECT_EQ(output_of("(" + command_for(*found) + ") < " + shell_word(path)), kText) << command_for(*found);
  }

  std::string command_for(const ContentConversion& conversion) const {
    const std::string message(conversion_advice(options_, "line 1", conversion).message());
    return message.substr(message.find(":\n  ") + 4);
  }

  static constexpr std::string_view kText = "name,price\ncaf\xc3\xa9,5\n";
  std::string directory_;
  std::string plain_;
  ImportOptions options_;
};

TEST_F(AdviceTest, ConvertsTextOfEveryEncodingThatIsRecognised) {
  for (const char* encoding : {"UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32"}) {
    try_advice("iconv", "iconv -f UTF-8 -t " + std::string(encoding) + " -- " + shell_path("-it's a table.csv"));
  }
}

TEST_F(AdviceTest, ConvertsTextOfOneByteACharacter) {
  options_.path = directory_ + "/latin";
  std::ofstream(options_.path, std::ios::binary) << "name,price\ncaf\xe9,5\n";
  EXPECT_EQ(output_of(command_for(eight_bit_encoding("caf\xe9"))), kText);
  std::ofstream(options_.path, std::ios::binary) << "\x80\n";
  EXPECT_EQ(output_of(command_for(eight_bit_encoding("\x80"))), "\xe2\x82\xac\n");
}

TEST_F(AdviceTest, UnpacksEveryKindOfFileThatIsRecognised) {
  const std::string file = shell_path("-it's a table.csv");
  for (const char* packer : {"bzip2 -c", "xz -c", "zstd -qc", "lz4 -qc"}) {
    const std::string program(packer);
    try_advice(program.substr(0, program.find(' ')), program + " < " + file);
  }
  try_advice("gzip", "gzip -c < " + file);
  if (has("unzip")) try_advice("zip", "zip -q - " + file);
}

TEST_F(AdviceTest, AdvisesWhereNoProgramConverts) {
  options_.path = "book.xlsx";
  const Status status = conversion_advice(options_, "", {"a spreadsheet", "", "", "save it as CSV"});
  EXPECT_EQ(status.to_string(), "kMalformed: book.xlsx: this is a spreadsheet; save it as CSV");
}

TEST(ResumeImport, NamesTheLinesThatAreLeftAndTheDelimiter) {
  ImportOptions options;
  options.table = "t";
  options.path = "f";
  std::vector<OptionValues> used_options;
  options.command = [&](std::span<const OptionValues> instead) {
    used_options.assign(instead.begin(), instead.end());
    return "the command";
  };
  ImportReport report;
  EXPECT_EQ(resume_text(options, report), "") << "nothing is left";
  report.remaining.add({7, 7});
  report.remaining.add({9, LineRange::kOpen});
  report.delimiter = '\t';
  EXPECT_EQ(resume_text(options, report), "loam: to go on, correct the cause and run: the command\n");
  ASSERT_EQ(used_options.size(), 2u);
  EXPECT_EQ(used_options[0].values, (std::vector<std::string>{"7", "9-"}));
  EXPECT_EQ(used_options[1].values, (std::vector<std::string>{"\\t"}));
  options.delimiter = ';';
  EXPECT_EQ(resume_command(options, report), "the command");
  EXPECT_EQ(used_options.size(), 1u) << "it is among the options that were given";
}

TEST(ResumeImport, PrintsNoCommandThatIsTooLong) {
  ImportOptions options;
  ImportReport report;
  for (uint64_t line = 2; report.remaining.ranges().size() < kMaxPrintedRanges; line += 2)
    report.remaining.add({line, line});
  EXPECT_NE(resume_command(options, report), "");
  report.remaining.add({1'000'000, LineRange::kOpen});
  EXPECT_EQ(resume_command(options, report), "");
  EXPECT_NE(resume_text(options, report).find("lines_remaining"), std::string::npos);
}

}  // namespace
}  // namespace loam::cli
