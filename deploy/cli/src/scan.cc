#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/output/figures.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/query/question.h"
#include "deploy/cli/src/query/sorted_rows.h"

namespace loam::cli {
namespace {

struct Options {
  std::string table;
  QuestionText text;
  bool statistics = false;
};

// Rows go out as they come, up to the limit; or they wait until all are there to be sorted.
Status print_rows(const Question& question, client::ScanStream& stream, RowPrinter& printer) {
  SortedRows sorted(question);
  uint64_t rows = 0;
  for (;;) {
    LOAM_ASSIGN_OR_RETURN(const auto chunk, stream.next());
    if (chunk == nullptr) break;
    if (!question.sort.empty()) {
      LOAM_RETURN_IF_ERROR(sorted.add(chunk->view()));
      continue;
    }
    const uint64_t left = question.limit == 0 ? chunk->rows() : question.limit - rows;
    printer.rows(chunk->view(), std::min<uint64_t>(left, chunk->rows()));
    rows += std::min<uint64_t>(left, chunk->rows());
  }
  for (const std::vector<Value>& row : sorted.take()) printer.row(row);
  printer.finish();
  return ok_status();
}

void print_statistics(const Context& context, const client::ScanStatistics& s) {
  if (context.json) {
    const nlohmann::ordered_json object = {{"statistics",
                                            {{"elapsed_ns", s.elapsed_ns},
                                             {"nodes", s.nodes},
                                             {"pages", s.pages},
                                             {"pages_total", s.pages_total},
                                             {"records", s.records},
                                             {"rows", s.rows},
                                             {"chunks", s.chunks},
                                             {"bytes", s.bytes}}}};
    std::cerr << json_line(object) << "\n";
    return;
  }
  std::cerr << fmt::format("{}: {} records in {} pages on {} node{}; {} rows matched, {} in {} chunks came back\n",
                           time_for_people(s.elapsed_ns), grouped(s.records), grouped(s.pages), s.nodes,
                           s.nodes == 1 ? "" : "s", grouped(s.rows), bytes_for_people(s.bytes), s.chunks);
}

int run(const Context& context, const Options& options) {
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  auto table = client->open_table(options.table);
  if (!table.ok()) return fail(context, table.status());
  auto question = parse_question(options.text, table->schema());
  if (!question.ok()) return fail(context, kExitUsage, question.status());
  auto stream = client->scan(*table, question->query);
  if (!stream.ok()) return fail(context, stream.status());

  auto printer = make_printer(context.format(), output_columns(*question, stream->schema()), std::cout);
  if (Status status = print_rows(*question, *stream, *printer); !status.ok()) return fail(context, status);
  std::cout.flush();
  if (options.statistics) print_statistics(context, stream->statistics());
  return kExitOk;
}

}  // namespace

void add_scan(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("scan", "Ask a question about all records of a table");
  QuestionText& text = options->text;
  command->add_option("table", options->table, "Name of the table")->required()->type_name("TABLE");
  command
      ->add_option("--where", text.where,
                   "Which records, such as \"dep_delay > 60 and origin = 'JFK'\". And, or, not, parentheses, = != < <= "
                   "> >=, in (…), between, is [not] null, like 'abc%'")
      ->type_name("CONDITION");
  command->add_option("--select", text.select, "Fields to show: \"origin, dest as to\"; _key is the record's key")
      ->type_name("FIELDS");
  command->add_flag("--with-key", text.with_key, "Show the record's key first");
  command
      ->add_option("--aggregate", text.aggregate,
                   "Sums instead of records: \"count(*), avg(dep_delay) as delay\". count, sum, min, max, avg")
      ->type_name("AGGREGATES");
  command->add_option("--group-by", text.group_by, "One row for each value of up to 4 fields")->type_name("FIELDS");
  command->add_option("--order-by", text.order_by, "Columns of the result: \"delay desc, carrier\"")
      ->type_name("COLUMNS");
  command->add_option("--limit", text.limit, "Most rows to show; 0: all")->type_name("ROWS");
  command->add_flag("--statistics", options->statistics, "Say on standard error what the scan cost");
  auto* csv = command->add_flag("--csv", context.csv, "Print CSV");
  add_connection(*command, context);
  csv->excludes(command->get_option("--json"));
  set_body(*command, context, [&context, options] { return run(context, *options); });
}

}  // namespace loam::cli
