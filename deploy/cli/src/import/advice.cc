// Builds the commands that an import prints. The command line comes from the parser (shell/command_line.h), so it
// keeps all options of this run.
#include "deploy/cli/src/import/advice.h"

#include <vector>

#include <fmt/format.h>

namespace loam::cli {
namespace {

bool is_standard_input(const ImportOptions& options) { return options.path == "-"; }

// The command that converts the input, with a pipe to the command that imports the result.
std::string convert_and_import(const ImportOptions& options, const ContentConversion& conversion,
                               std::vector<OptionValues> instead) {
  std::string filter = conversion.pipe_filter;
  if (!is_standard_input(options)) filter = conversion.file_filter + " " + shell_path(options.path);
  instead.push_back({"file", {"-"}});
  return filter + " | " + import_command(options, instead);
}

std::vector<OptionValues> rest_of(const ImportOptions& options, const ImportReport& report) {
  // Repeats the choices of this run that a later run could make differently: the delimiter that was derived, and the
  // fields that fit all rows read so far.
  std::vector<OptionValues> instead = {{"--lines", report.remaining.texts()}};
  if (!options.delimiter) instead.push_back({"--delimiter", {delimiter_text(report.delimiter)}});
  if (report.dropped_table) instead.push_back({"--schema", {report.wider_schema}});
  return instead;
}

}  // namespace

std::string delimiter_text(char delimiter) { return delimiter == '\t' ? "\\t" : std::string(1, delimiter); }

std::string import_command(const ImportOptions& options, std::span<const OptionValues> instead) {
  if (options.command) return options.command(instead);
  return fmt::format("loam import {} {}", shell_word(options.table), shell_word(options.path));
}

Status conversion_advice(const ImportOptions& options, const std::string& where, const ContentConversion& conversion) {
  const std::string name = is_standard_input(options) ? "the standard input" : options.path;
  const std::string_view between = where.empty() ? "" : ": ";
  if (conversion.file_filter.empty()) {
    return {StatusCode::kMalformed,
            fmt::format("{}{}{}: this is {}; {}", name, between, where, conversion.content, conversion.advice)};
  }
  const std::string_view condition = conversion.advice.empty() ? "" : ", ";
  return {StatusCode::kMalformed,
          fmt::format("{}{}{}: this is {}, and import reads CSV in UTF-8, plain or gzip. This converts and imports "
                      "it{}{}:\n  {}",
                      name, between, where, conversion.content, condition, conversion.advice,
                      convert_and_import(options, conversion, {}))};
}

std::string resume_command(const ImportOptions& options, const ImportReport& report) {
  if (report.remaining.empty() || report.remaining.ranges().size() > kMaxPrintedRanges) return "";
  return import_command(options, rest_of(options, report));
}

std::string resume_text(const ImportOptions& options, const ImportReport& report) {
  if (report.remaining.empty()) return "";
  std::string text;
  if (report.dropped_table) {
    text += fmt::format(
        "loam: table {}, which this import created, is dropped again, because its fields were guessed from "
        "the first rows and do not fit line {}; the command below names fields that fit\n",
        options.table, report.misfit_line);
  } else if (!report.wider_schema.empty()) {
    text += fmt::format(
        "loam: the fields of {} were guessed from the first rows; a new table would take these lines "
        "by --schema {}\n",
        options.table, shell_word(report.wider_schema));
  }
  const std::string command = resume_command(options, report);
  if (command.empty()) {
    return text + fmt::format(
                      "loam: these are more than {} ranges of lines, too many for a command line; with --json "
                      "the report lists them as lines_remaining\n",
                      kMaxPrintedRanges);
  }
  if (is_standard_input(options)) {
    text += "loam: to go on, correct the cause, and give the same input from its first line to: ";
  } else {
    text += "loam: to go on, correct the cause and run: ";
  }
  text += command + "\n";
  if (report.encoding) {
    text += fmt::format("loam: if this is {}, run instead: {}\n", report.encoding->content,
                        convert_and_import(options, *report.encoding, rest_of(options, report)));
  }
  return text;
}

}  // namespace loam::cli
