// The forms of suggested commands, and the function that fills in their values and the location of the cluster.
#include "deploy/cli/src/shell/hint.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "deploy/cli/src/shell/command_line.h"

namespace loam::cli {
namespace {

constexpr std::array<HintForm, 20> kHintForms = {{
    {Hint::kAcceptLoss, HintLocation::kAdministration, "node accept-loss {}"},
    {Hint::kClusterDown, HintLocation::kFolder, "cluster down"},
    {Hint::kClusterStatus, HintLocation::kFolder, "cluster status"},
    {Hint::kClusterUp, HintLocation::kFolder, "cluster up"},
    {Hint::kDev, HintLocation::kNone, "dev"},
    {Hint::kImport, HintLocation::kConnection, "import {} {}"},
    {Hint::kImportHelp, HintLocation::kNone, "import --help"},
    {Hint::kIndexCreate, HintLocation::kConnection, "index create {} --table {} --fields {}"},
    {Hint::kIndexCreateHelp, HintLocation::kNone, "index create --help"},
    {Hint::kIndexCreateUnique, HintLocation::kConnection, "index create {} --table {} --fields {} --unique"},
    {Hint::kIndexDrop, HintLocation::kConnection, "index drop {}"},
    {Hint::kIndexList, HintLocation::kConnection, "index list"},
    {Hint::kNodeList, HintLocation::kAdministration, "node list"},
    {Hint::kQueries, HintLocation::kAdministration, "queries"},
    {Hint::kScanByIndex, HintLocation::kConnection, "scan {} --index {}"},
    {Hint::kScanCarriers, HintLocation::kConnection, "scan {} --aggregate {} --group-by carrier"},
    {Hint::kSessionEnd, HintLocation::kAdministration, "session end {}"},
    {Hint::kStatus, HintLocation::kAdministration, "status"},
    {Hint::kTableCreateHelp, HintLocation::kNone, "table create --help"},
    {Hint::kTableList, HintLocation::kConnection, "table list"},
}};

ClusterLocation& cluster_location() {
  static ClusterLocation place;
  return place;
}

}  // namespace

std::span<const HintForm> hint_forms() { return kHintForms; }

void set_cluster_location(ClusterLocation place) { cluster_location() = std::move(place); }

std::string hint(Hint which, std::initializer_list<std::string_view> values) {
  return hint_at(cluster_location(), which, values);
}

std::string hint_at(const ClusterLocation& place, Hint which, std::initializer_list<std::string_view> values) {
  const auto form =
      std::find_if(kHintForms.begin(), kHintForms.end(), [which](const HintForm& one) { return one.hint == which; });
  // Collects subcommand, positional values and options in three texts, because their order depends on whether a value
  // needs the marker "--".
  std::string command = "loam";
  std::string arguments;
  std::string options;
  bool marked = false;
  std::string option;  // the last one; its value may follow
  const auto end_option = [&] { options += option.empty() ? "" : " " + std::exchange(option, ""); };
  const std::string_view* value = values.begin();
  std::string_view rest = form->words;
  while (!rest.empty()) {
    const std::string_view form_word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), form_word.size() + 1));
    const std::string_view word = form_word == "{}" && value != values.end() ? *value++ : form_word;
    if (form_word.starts_with("--")) {
      end_option();
      option = word;
    } else if (!option.empty()) {
      options += " " + option_words(std::exchange(option, ""), word);
    } else if (form_word == "{}") {
      arguments += " " + shell_word(word);
      marked |= needs_marker(word);
    } else {
      command += " " + std::string(word);
    }
  }
  end_option();
  // The options of the location, as the form needs them. An empty one is left out.
  const auto add = [&options](const char* name, const std::string& argument) {
    if (!argument.empty()) options += " " + option_words(name, argument);
  };
  if (form->place == HintLocation::kConnection || form->place == HintLocation::kAdministration) {
    add("--connect", place.connect);
  }
  if (form->place == HintLocation::kAdministration) add("--admin", place.admin);
  if (form->place == HintLocation::kFolder) add("--dir", place.directory);
  return command + (marked ? options + " --" + arguments : arguments + options);
}

}  // namespace loam::cli
