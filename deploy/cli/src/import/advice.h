// What a person types to go on after an import, or instead of one.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "deploy/cli/src/csv/encoding.h"
#include "deploy/cli/src/import/importer.h"
#include "deploy/cli/src/shell/command_line.h"

namespace loam::cli {

/// Ranges of lines that a printed command names at most: the system limits the length of a command line.
inline constexpr size_t kMaxPrintedRanges = 1'000;

/// --delimiter as it is typed: ";", "\t".
std::string delimiter_text(char delimiter);

/// The command line of this import, with other values of some options.
std::string import_command(const ImportOptions& options, std::span<const OptionValues> instead);

/// kMalformed for an input with this content: `where` ("line 1"; may be empty), what it is, and the command that
/// converts it and imports the result.
Status conversion_advice(const ImportOptions& options, const std::string& where, const ContentConversion& conversion);

/// The command that goes on with the lines that an import left out; empty if it left none, or more than
/// kMaxPrintedRanges ranges of them.
std::string go_on_command(const ImportOptions& options, const ImportReport& report);

/// The text that an import ends with if it left lines out: the command to go on, and what has to be known of it.
std::string go_on_text(const ImportOptions& options, const ImportReport& report);

}  // namespace loam::cli
