// Commands that an import prints for the user: how to continue it, or how to convert the input first.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "deploy/cli/src/csv/encoding.h"
#include "deploy/cli/src/import/importer.h"
#include "deploy/cli/src/shell/command_line.h"

namespace loam::cli {

/// Upper bound on the ranges of lines in a printed command, because the system limits the length of a command line.
inline constexpr size_t kMaxPrintedRanges = 1'000;

/// The value of --delimiter as the user types it: ";", "\t".
std::string delimiter_text(char delimiter);

/// The command line of this import, with the options of `instead` changed.
std::string import_command(const ImportOptions& options, std::span<const OptionValues> instead);

/// The error for an input with such a content. kMalformed; the message has the place `where` ("line 1"; may be empty),
/// the name of the content, and a command that converts the input and imports the result.
Status conversion_advice(const ImportOptions& options, const std::string& where, const ContentConversion& conversion);

/// The command that imports the lines which an import left out. Empty if it left out no lines, or more than
/// kMaxPrintedRanges ranges.
std::string resume_command(const ImportOptions& options, const ImportReport& report);

/// The closing text of an import that left lines out: the command to continue, and what the user must know before.
std::string resume_text(const ImportOptions& options, const ImportReport& report);

}  // namespace loam::cli
