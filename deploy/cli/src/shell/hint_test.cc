#include "deploy/cli/src/shell/hint.h"

#include <cstdio>

#include <gtest/gtest.h>

#include "deploy/cli/src/shell/command_line.h"

namespace loam::cli {
namespace {

/// What a shell makes of the words, one a line.
std::string as_read_by_a_shell(const std::string& words) {
  FILE* pipe = popen(("printf '<%s>\\n' " + words).c_str(), "r");
  std::string output;
  for (int c; (c = fgetc(pipe)) != EOF;) output += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0);
  return output;
}

TEST(Hint, QuotedWordsSurviveShell) {
  for (const std::string text :
       {"plain", "two words", "it's", "$HOME `id` \"x\" \\n *", "a\nb", "", "--dash", "日本", "~"}) {
    EXPECT_EQ(as_read_by_a_shell(shell_word(text)), "<" + text + ">\n");
  }
  EXPECT_EQ(shell_word("tcp://127.0.0.1:7400"), "tcp://127.0.0.1:7400") << "what needs no quotes has none";
}

TEST(Hint, RepeatsLocationOfCluster) {
  EXPECT_EQ(hint(Hint::kIndexDrop, {"my index"}), "loam index drop 'my index'");
  set_cluster_location({"tcp://h:1", "h:2", "/a b"});
  EXPECT_EQ(hint(Hint::kIndexDrop, {"i"}), "loam index drop i --connect tcp://h:1");
  EXPECT_EQ(hint(Hint::kAcceptLoss, {"7"}), "loam node accept-loss 7 --connect tcp://h:1 --admin h:2");
  EXPECT_EQ(hint(Hint::kClusterDown), "loam cluster down --dir '/a b'");
  EXPECT_EQ(hint(Hint::kDev), "loam dev");
  EXPECT_EQ(hint_at({"x:3", "", ""}, Hint::kStatus), "loam status --connect x:3");
  set_cluster_location({});
}

TEST(Hint, PutsMarkerBeforeNamesLikeOptions) {
  EXPECT_EQ(hint(Hint::kIndexDrop, {"-x"}), "loam index drop -- -x");
  EXPECT_EQ(hint(Hint::kIndexCreateUnique, {"-i", "--t", "-f"}),
            "loam index create --table=--t --fields -f --unique -- -i");
  EXPECT_EQ(hint(Hint::kIndexCreate, {"i", "-t", "f"}), "loam index create i --table -t --fields f");
  EXPECT_EQ(hint_at({"h:1", "", ""}, Hint::kImport, {"t", "-f"}), "loam import --connect h:1 -- t -f");
  EXPECT_EQ(hint(Hint::kImport, {"t", "-"}), "loam import t -") << "the standard input";
}

TEST(Hint, EveryCommandHasItsForm) {
  for (size_t i = 0; i < hint_forms().size(); ++i) EXPECT_EQ(hint_forms()[i].hint, static_cast<Hint>(i));
}

}  // namespace
}  // namespace loam::cli
