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

/// "threads" is closer to "thread" than a letter or two.
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

/// The value as it would stand on the command line; empty if the option does not take a value of this type.
std::optional<std::string> as_argument(const Option& option, const toml::node& node) {
  if (const auto* flag = node.as_boolean(); flag != nullptr && option.is_flag) return flag->get() ? "true" : "false";
  if (const auto* text = node.as_string(); text != nullptr && option.takes_text) return text->get();
  if (const auto* number = node.as_integer(); number != nullptr && option.takes_number) {
    return std::to_string(number->get());
  }
  if (const auto* number = node.as_floating_point(); number != nullptr && option.takes_number) {
    std::array<char, 32> out;
    const auto [end, error] = std::to_chars(out.data(), out.data() + out.size(), number->get());
    return std::string(out.data(), end);
  }
  return std::nullopt;
}

/// Walks the sections of one file.
class Reader {
 public:
  Reader(const OptionSet& options, const std::string& path) : options_(options), path_(path) {}

  void read(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
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
    const bool twice = std::any_of(items_.begin(), items_.end(), [&](const auto& item) { return item.name == name; });
    if (twice) fail(path_, key_at, "option '" + name + "' is given twice");
    const auto argument = as_argument(*option, node);
    if (!argument) {
      fail(path_, node.source().begin, "option '" + name + "' expects " + option->expects);
    }
    // Sets the variable too early, before the command line had its say; CLI11 sets it again from whichever counts.
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
