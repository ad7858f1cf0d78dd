// `loam import`: its options, exit codes and reports. import/importer.h imports the file.
#include <cerrno>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/env.h"
#include "common/command/number_options.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/host/interrupt.h"
#include "deploy/cli/src/import/advice.h"
#include "deploy/cli/src/import/importer.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/output/progress.h"
#include "deploy/cli/src/shell/command_line.h"

namespace loam::cli {
namespace {

/// Upper bound on the bad rows that are printed for people; --json lists up to kMaxListedBadRows.
constexpr size_t kShownBadRows = 20;

struct ImportCommandOptions {
  ImportOptions import;
  std::string key;
  std::string kind = "transactional";
  std::string on_error = "stop";
  std::string delimiter = "auto";
  std::vector<std::string> nulls;
  std::vector<std::string> lines;
};

// The first cause in this order decides: an error that ended the import, an interruption, bad rows.
ExitCode import_exit_code(const ImportCommandOptions& options, const ImportReport& report) {
  if (!report.outcome.fatal.ok()) {
    // A truncated or damaged file is bad data; every other error is one of the cluster.
    if (report.outcome.fatal == StatusCode::kMalformed) return kExitBadData;
    return exit_code_of(report.outcome.fatal);
  }
  if (report.interrupted) return kExitInterrupted;
  if (report.outcome.bad == 0) return kExitOk;
  return options.on_error == "skip" ? kExitPartly : kExitBadData;
}

void print_json(const ImportOptions& options, const ImportReport& report, double seconds, ExitCode code) {
  const LoadOutcome& outcome = report.outcome;
  nlohmann::ordered_json object = {{"table", options.table},
                                   {"imported", outcome.imported},
                                   {"bad", outcome.bad},
                                   {"created_table", report.created_table},
                                   {"dropped_table", report.dropped_table},
                                   {"delimiter", std::string(1, report.delimiter)},
                                   {"finished", report.finished},
                                   {"lines_imported", outcome.imported_lines.to_string()},
                                   {"lines_remaining", report.remaining.to_string()},
                                   {"lines_doubtful", outcome.unknown_outcome_lines.to_string()},
                                   {"seconds", seconds},
                                   {"bad_rows", nlohmann::ordered_json::array()},
                                   {"exit_code", static_cast<int>(code)}};
  for (const BadRow& row : outcome.bad_rows)
    object["bad_rows"].push_back({{"line", row.line}, {"message", row.message}});
  if (!report.remaining.empty()) object["resume_command"] = resume_command(options, report);
  if (!report.wider_schema.empty()) object["wider_schema"] = report.wider_schema;
  if (!outcome.fatal.ok()) object["error"] = {{"message", outcome.fatal.to_string()}};
  std::cout << json_line(object) << "\n";
}

void print_text(const ImportOptions& options, const ImportReport& report, double seconds) {
  const LoadOutcome& outcome = report.outcome;
  const std::string& path = options.path;
  for (size_t i = 0; i < std::min(outcome.bad_rows.size(), kShownBadRows); ++i) {
    std::cerr << fmt::format("loam: {}: {}\n", path, outcome.bad_rows[i].message);
  }
  if (outcome.bad > kShownBadRows) {
    std::cerr << fmt::format("loam: {}: {} more bad rows\n", path,
                             with_thousands_separators(outcome.bad - kShownBadRows));
  }
  if (!outcome.fatal.ok()) std::cerr << fmt::format("loam: the import stopped: {}\n", outcome.fatal.message());
  if (report.interrupted) std::cerr << "loam: the import was interrupted\n";
  std::cout << fmt::format(
      "{} rows imported into {} in {:.2f} s ({} rows/s)", with_thousands_separators(outcome.imported), options.table,
      seconds, with_thousands_separators(static_cast<uint64_t>(static_cast<double>(outcome.imported) / seconds)));
  if (outcome.bad > 0) std::cout << fmt::format(", {} bad", with_thousands_separators(outcome.bad));
  std::cout << std::endl;
  if (report.remaining.empty()) return;
  std::cerr << fmt::format("loam: imported lines: {}\nloam: not imported: {}\n", outcome.imported_lines.to_string(),
                           report.remaining.to_string());
  if (!outcome.unknown_outcome_lines.empty()) {
    std::cerr << fmt::format(
        "loam: of those, the outcome of lines {} is unknown: check these records before you repeat the lines\n",
        outcome.unknown_outcome_lines.to_string());
  }
  std::cerr << resume_text(options, report);
}

Result<ImportOptions> complete(const ImportCommandOptions& options) {
  ImportOptions import = options.import;
  if (!options.key.empty()) import.key_column = options.key;
  if (options.kind == "non-transactional") import.kind = TableKind::kNonTransactional;
  import.skip_bad_rows = options.on_error == "skip";
  if (!options.nulls.empty()) import.nulls.words = options.nulls;
  LOAM_ASSIGN_OR_RETURN(import.lines, LineRanges::parse(options.lines));
  if (options.delimiter == "auto") return import;
  const std::string delimiter = options.delimiter == "\\t" ? "\t" : options.delimiter;
  if (delimiter.size() != 1 || delimiter == "\"" || delimiter == "\n" || delimiter == "\r") {
    return Status(
        StatusCode::kInvalidArgument,
        "--delimiter is one character, not a quote or a line end; \\t is a tab, auto derives it from the first rows");
  }
  import.delimiter = delimiter[0];
  return import;
}

// The command line of this run with other values of some options. It names every address except the default, also one
// from the environment, because another shell may lack the variable.
std::string repeat(const Context& context, const CLI::App& command, const std::string& path,
                   std::span<const OptionValues> instead) {
  // The file is repeated with "./" before a leading dash, so that the parser does not take it for an option.
  std::vector<OptionValues> values(instead.begin(), instead.end());
  if (context.connect != kDefaultAddress) values.push_back({"--connect", {context.connect}});
  if (path != "-") values.push_back({"file", {plain_path(path)}});
  return repeat_command(command, program_invocation_name, values);
}

int run_import(const Context& context, const ImportCommandOptions& options) {
  auto import = complete(options);
  if (!import.ok()) return fail(context, kExitUsage, import.status());
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  catch_interrupts();  // nothing was written before this line, so a signal simply ends the program
  // The descriptor ends a wait for a silent pipe; interrupted() is checked between rows.
  import->stop = interrupt_descriptor();

  const bool terminal = standard_error_is_terminal();
  ProgressOptions look;
  look.terminal = terminal;
  look.width = terminal_width();
  const uint64_t begin_ns = Env::now_ns();
  ProgressBar bar(std::cerr, look, begin_ns);
  import->progress = [&](double fraction, uint64_t rows) {
    if (!context.json) bar.update(fraction, rows, Env::now_ns());
    return !interrupted();
  };
  import->note = [&](const std::string& text) {
    if (!context.json) std::cerr << "loam: " << text << "\n";
  };
  auto report = import_file(*client, *import);
  bar.clear();
  // No row was written, so the error alone is the report.
  if (!report.ok()) {
    const StatusCode code = report.code();
    const bool bad_data = code == StatusCode::kMalformed || code == StatusCode::kNotFound;
    if (bad_data) return fail(context, kExitBadData, report.status());
    if (code == StatusCode::kInvalidArgument) return fail(context, kExitUsage, report.status());
    return fail(context, report.status());
  }
  const double seconds = static_cast<double>(Env::now_ns() - begin_ns) / 1e9;
  const ExitCode code = import_exit_code(options, *report);
  if (context.json) {
    print_json(*import, *report, seconds, code);
  } else {
    print_text(*import, *report, seconds);
  }
  return code;
}

}  // namespace

void add_import(CLI::App& app, Context& context) {
  auto options = std::make_shared<ImportCommandOptions>();
  ImportOptions& import = options->import;
  CLI::App* command = app.add_subcommand("import", "Load a CSV file, plain or gzip, into a table");
  command->add_option("table", import.table, "Name of the table; created if it does not exist")
      ->required()
      ->type_name("TABLE");
  command->add_option("file", import.path, "CSV with a header line; - is the standard input")
      ->required()
      ->type_name("FILE");
  command->add_option("--key", options->key, "Column with the record's key; without it keys come from a counter")
      ->type_name("COLUMN");
  command
      ->add_option(
          "--schema", import.schema,
          "Fields of the table, \"id:int64,note:text?\"; without it, those of the table, or inferred from the file")
      ->type_name("FIELDS");
  command->add_option("--kind", options->kind, "Kind of a table that the import creates")
      ->check(CLI::IsMember({"transactional", "non-transactional"}))
      ->capture_default_str();
  command->add_option("--on-error", options->on_error, "What to do at a bad row")
      ->check(CLI::IsMember({"stop", "skip"}))
      ->capture_default_str();
  command->add_option("--null", options->nulls, "Unquoted text that means NULL; without it, the empty text and NA")
      ->type_name("WORD");
  command
      ->add_option("--delimiter", options->delimiter,
                   "Character between fields; \\t is a tab; auto derives it from the first rows: , ; tab or |")
      ->type_name("CHARACTER")
      ->capture_default_str();
  command
      ->add_option("--lines", options->lines,
                   "Import only these lines of the file, for example after a failure: 501- or 7")
      ->type_name("FROM-TO");
  command::add_unsigned(*command, "--batch", import.batch_rows, {1, 10'000}, "Rows of a transaction");
  command::add_unsigned(*command, "--in-flight", import.batches_in_flight, {1, 1'000}, "Concurrent transactions");
  add_connection(*command, context);
  import.command = [&context, command, &path = import.path](std::span<const OptionValues> instead) {
    return repeat(context, *command, path, instead);
  };
  set_body(*command, context, [&context, options] { return run_import(context, *options); });
}

}  // namespace loam::cli
