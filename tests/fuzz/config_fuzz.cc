// Fuzz target: configuration files, and sizes and durations as people write them. Input: a choice (odd: a size and a
// duration), then the text.
#include <sstream>

#include "common/net/transport/address.h"
#include "common/program/config_file.h"
#include "common/program/options.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace loam;
using namespace loam::program;

/// One option of each kind. Some names are prefixes of others.
struct Settings {
  Settings() {
    options.text("listen", listen, "where");
    options.text("listen-admin", admin, "where");
    options.number("threads", threads, "how many");
    options.number("scan-threads", scan_threads, "how many");
    options.size("memory", memory, "how much");
    options.duration("client-lease", lease, "how long");
    options.fraction("compact-dead-share", share, "how much");
    options.flag("huge-pages", huge, "whether");
    options.choice("log-level", level, {"info", "warning"}, "what");
  }
  /// True if the text is a valid configuration.
  bool read(const std::string& text) {
    ConfigFile file(options);
    file.set_path("some.toml");
    std::istringstream input(text);
    try {
      for (const CLI::ConfigItem& item : file.from_config(input)) {
        for (const std::string& value : item.inputs) {
          fuzz::require_ok(options.find(item.name)->set(value), "a parsed value can be set");
        }
      }
    } catch (const CLI::ConfigError& error) {
      fuzz::require(std::string_view(error.what()).find("some.toml") != std::string_view::npos, "errors name the file");
      return false;
    }
    return true;
  }

  std::string listen, admin;
  uint16_t threads = 1;
  uint64_t scan_threads = 1;
  uint64_t memory = 0;
  uint64_t lease = 0;
  double share = 0;
  bool huge = true;
  size_t level = 0;
  OptionSet options;
};

int check_numbers(std::string_view text) {
  const auto size = parse_size(text);
  if (size.ok()) {
    const auto again = parse_size(size_text(*size));
    fuzz::require(again.ok() && *again == *size, "a size survives writing");
  }
  const auto duration = parse_duration(text);
  if (duration.ok()) {
    const auto again = parse_duration(duration_text(*duration));
    fuzz::require(again.ok() && *again == *duration, "a duration survives writing");
  }
  const auto address = net::Address::parse(text);
  if (address.ok()) {
    const auto again = net::Address::parse(address->to_string());
    fuzz::require(again.ok() && *again == *address, "an address survives writing");
  }
  return size.ok() || duration.ok() || address.ok() ? 0 : -1;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes rest = fuzz::input(data, size);
  if (fuzz::consume_choice(rest) % 2 == 1) return check_numbers(as_text(rest));
  Settings settings;
  if (!settings.read(std::string(as_text(rest)))) return -1;
  // The options must survive a round trip through their text.
  const std::string written = settings.options.to_toml();
  Settings again;
  fuzz::require(again.read(written), "a written configuration can be read");
  fuzz::require(again.options.to_toml() == written, "a configuration survives writing");
  (void)settings.options.to_json();
  return 0;
}
