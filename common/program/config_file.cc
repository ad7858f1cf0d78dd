// Reads the TOML file by toml++ and passes each key to CLI11, which merges it with the command line.
#include "common/program/config_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <istream>
#include <optional>
#include <utility>

#include <toml++/toml.h>

namespace loam::program {
namespace {

[[noreturn]] void fail(const std::string& path, const toml::source_position& at, const std::string& what) {
  throw CLI::ConfigError(path + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) + ": " + what,
                         CLI::ExitCodes::ConfigError);
}

/// The Levenshtein distance of two names: the number of letters to insert, remove or replace. It finds the option that
/// a mistyped name means. `row` holds one row of the usual table.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

/// The message about an unknown key. It proposes the option with the nearest name, at most kNear letters away.
std::string unknown(const OptionSet& options, const std::string& name) {
  constexpr size_t kNear = 3;
  std::string text = "there is no option '" + name + "'";
  const Option* nearest = nullptr;
  size_t least = kNear + 1;
  for (const Option& option : options.all()) {
    if (const size_t d = distance(option.name, name); d < least) {
      least = d;
      nearest = &option;
    }
  }
  return nearest == nullptr ? text + "; --help lists them" : text + "; did you mean '" + nearest->name + "'?";
}

/// The value in the form of the command line. Empty: the option does not take a value of this TOML type.
std::optional<std::string> as_argument(const Option& option, const toml::node& node) {
  if (const auto* flag = node.as_boolean(); flag != nullptr && option.is_flag) return flag->get() ? "true" : "false";
  if (const auto* text = node.as_string(); text != nullptr && option.takes_text) return text->get();
  if (const auto* number = node.as_integer(); number != nullptr && option.takes_number) {
    return std::to_string(number->get());
  }
  if (const auto* number = node.as_floating_point(); number != nullptr && option.takes_number) {
    // The shortest text that reads back as the same number.
    std::array<char, 32> out;
    const auto [end, error] = std::to_chars(out.data(), out.data() + out.size(), number->get());
    return std::string(out.data(), end);
  }
  return std::nullopt;
}

/// Reads the sections of one file and collects their options in the form that CLI11 expects.
class Reader {
 public:
  Reader(const OptionSet& options, const std::string& path) : options_(options), path_(path) {}

  void read(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      // The option's name is the names of its sections and the key, joined by dashes. Sections may nest.
      const std::string name = prefix + std::string(key.str());
      if (const toml::table* section = node.as_table(); section != nullptr) {
        read(*section, name + "-");
      } else {
        read_option(name, key.source().begin, node);
      }
    }
  }

  std::vector<CLI::ConfigItem> take() { return std::move(items_); }

 private:
  void read_option(const std::string& name, const toml::source_position& key_at, const toml::node& node) {
    const Option* option = options_.find(name);
    if (option == nullptr) fail(path_, key_at, unknown(options_, name));
    // TOML rejects a repeated key, but `a-b` and `b` in section `a` are one option by two keys.
    const bool twice = std::any_of(items_.begin(), items_.end(), [&](const auto& item) { return item.name == name; });
    if (twice) fail(path_, key_at, "option '" + name + "' is given twice");
    const auto argument = as_argument(*option, node);
    if (!argument) {
      fail(path_, node.source().begin, "option '" + name + "' expects " + option->expects);
    }
    // The call checks the value, so that the error can name its position in the file. It also sets the variable. That
    // is harmless: CLI11 sets the variable again, from the command line if the option is given there, else from here.
    if (const Status status = option->set(*argument); !status.ok()) {
      fail(path_, node.source().begin, "option '" + name + "': " + std::string(status.message()));
    }
    CLI::ConfigItem item;
    item.name = name;
    item.inputs = {*argument};
    items_.push_back(std::move(item));
  }

  const OptionSet& options_;
  const std::string& path_;
  std::vector<CLI::ConfigItem> items_;
};

}  // namespace

std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream& input) const {
  toml::table table;
  try {
    table = toml::parse(input, path_);
  } catch (const toml::parse_error& error) {
    fail(path_, error.source().begin, std::string(error.description()));
  }
  Reader reader(options_, path_);
  reader.read(table, "");
  return reader.take();
}

}  // namespace loam::program
