// Configuration files in TOML, with the long names of the options as keys.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "common/program/options.h"

namespace loam::program {

/// Reads the configuration file of a program for CLI11.
///
/// The name of a section is the beginning of an option's name: `threads` in `[scan]` sets `scan-threads`. An unknown
/// key, a value of a wrong type, and an option that is given twice are errors; the message names file, line and
/// column. Owner: the CLI::App. The OptionSet outlives it. Threads: one.
class ConfigFile final : public CLI::Config {
 public:
  explicit ConfigFile(const OptionSet& options) : options_(options) {}

  /// Sets the path that errors name. Call it before from_config().
  void set_path(std::string path) { path_ = std::move(path); }

  /// Parses the file and sets the variables of its options. Throws CLI::ConfigError if the file is wrong.
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;
  /// The effective options as a configuration file.
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return options_.to_toml(); }

 private:
  const OptionSet& options_;
  std::string path_;
};

}  // namespace loam::program
