// Configuration files: TOML, each option's long name a key.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "common/program/options.h"

namespace loam::program {

/// Role: reads a configuration file for CLI11. A section is the beginning of a name: `threads` in `[scan]` is
/// `scan-threads`. Keys that are no option, values of a wrong type, and options given twice are errors that tell file,
/// line and column. Owner: the CLI::App; the OptionSet outlives it. Threads: one.
class ConfigFile final : public CLI::Config {
 public:
  explicit ConfigFile(const OptionSet& options) : options_(options) {}

  /// Named in errors; set before the file is read.
  void set_path(std::string path) { path_ = std::move(path); }

  /// Throws CLI::ConfigError.
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return options_.to_toml(); }

 private:
  const OptionSet& options_;
  std::string path_;
};

}  // namespace loam::program
