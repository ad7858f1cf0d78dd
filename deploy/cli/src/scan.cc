// `loam scan`: a shared scan of a whole table. scan_index.cc reads by an index instead; query/ parses the options.
#include <algorithm>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/env.h"
#include "common/base/thread.h"
#include "common/command/number_options.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/index/handles.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/output/progress.h"
#include "deploy/cli/src/query/query_plan.h"
#include "deploy/cli/src/query/sorted_rows.h"
#include "deploy/cli/src/scan_index.h"

namespace loam::cli {
namespace {

constexpr program::UnsignedRange kTimeLimitNs{1, uint64_t{24} * 3'600'000'000'000};

struct ScanCommandOptions {
  std::string table;
  QueryText text;
  bool statistics = false;
  bool explain = false;
  uint64_t time_limit_ns = 0;  // 0: none
  IndexScanText index;
};

/// The name of the first given option that a scan by index does not support; empty if there is none.
std::string_view shared_scan_only(const ScanCommandOptions& options) {
  const QueryText& text = options.text;
  if (!text.where.empty()) return "--where";
  if (!text.aggregate.empty()) return "--aggregate";
  if (!text.group_by.empty()) return "--group-by";
  if (!text.having.empty()) return "--having";
  if (!text.order_by.empty()) return "--order-by";
  if (options.time_limit_ns != 0) return "--time-limit";
  if (options.statistics) return "--stats";
  return options.explain ? "--explain" : "";
}

/// A progress bar of pages on standard error, shown until the first rows are printed. The client's thread updates it.
class PageBar {
 public:
  PageBar() : bar_(std::cerr, look(), Env::now_ns()) {}
  ~PageBar() { end(); }

  void update(const client::ScanStatistics& s) {
    const std::scoped_lock lock(mutex_);
    if (ended_) return;
    const auto done = static_cast<double>(s.pages + s.pages_skipped);
    bar_.update(s.pages_total == 0 ? -1 : std::min(1.0, done / static_cast<double>(s.pages_total)), s.pages,
                Env::now_ns());
  }
  void end() {
    const std::scoped_lock lock(mutex_);
    if (!std::exchange(ended_, true)) bar_.clear();
  }

 private:
  static ProgressOptions look() {
    ProgressOptions look;
    look.terminal = standard_error_is_terminal();
    look.width = terminal_width();
    look.unit = "pages";
    return look;
  }

  Mutex mutex_;
  ProgressBar bar_;     // guarded by mutex_
  bool ended_ = false;  // guarded by mutex_
};

// Prints rows as they arrive, up to the limit, or collects all of them to sort them.
Status print_rows(const QueryPlan& plan, client::ScanStream& stream, RowPrinter& printer, PageBar& bar) {
  SortedRows sorted(plan);
  for (;;) {
    LOAM_ASSIGN_OR_RETURN(const auto chunk, stream.next());
    if (chunk == nullptr) break;
    // Rows are printed from here on, and the bar must not stand between them. With a sort the rows come at the end, so
    // the bar stays.
    if (plan.sort.empty()) bar.end();
    if (!plan.sort.empty()) {
      LOAM_RETURN_IF_ERROR(sorted.add(chunk->view()));
      continue;
    }
    printer.rows(chunk->view(), chunk->rows());
    if (!std::cout) return ok_status();  // main() reports the lost output; the scan is cancelled
  }
  bar.end();
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
                                             {"pages_skipped", s.pages_skipped},
                                             {"pages_total", s.pages_total},
                                             {"records", s.records},
                                             {"rows", s.rows},
                                             {"chunks", s.chunks},
                                             {"bytes", s.bytes},
                                             {"busy_ns", s.busy_ns},
                                             {"queued_ns", s.queued_ns}}}};
    std::cerr << json_line(object) << "\n";
    return;
  }
  std::cerr << fmt::format("{}: {} records in {} pages on {} node{}; {} rows matched, {} in {} chunks came back\n",
                           format_duration(s.elapsed_ns), with_thousands_separators(s.records),
                           with_thousands_separators(s.pages), s.nodes, s.nodes == 1 ? "" : "s",
                           with_thousands_separators(s.rows), format_bytes(s.bytes), s.chunks)
            << fmt::format("{} of scan threads' time; {} until the first page; {} of {} pages skipped\n",
                           format_duration(s.busy_ns), format_duration(s.queued_ns),
                           with_thousands_separators(s.pages_skipped), with_thousands_separators(s.pages_total));
}

int print_plan(const Context& context, client::ScanStream& stream) {
  // The plan is complete when the stream has ended; an explained scan has no rows.
  if (const auto none = stream.next(); !none.ok()) return fail(context, none.status());
  const std::string plan = stream.plan();
  if (context.json) {
    std::cout << json_line({{"plan", plan}}) << "\n";
  } else {
    std::cout << plan;
  }
  return kExitOk;
}

int run_scan(const Context& context, const ScanCommandOptions& options) {
  // An index gives records in its order; only a shared scan evaluates conditions and aggregates.
  const std::string_view unfit = options.index.name.empty() ? "" : shared_scan_only(options);
  if (!unfit.empty()) {
    return fail(
        context, kExitUsage,
        fmt::format("{} cannot be combined with --index, which reads a part of an index (--from, --to, --prefix) in "
                    "its order; without --index the scan reads all records",
                    unfit));
  }
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  auto table = open_table(*client, options.table);
  if (!table.ok()) return fail(context, table.status());
  auto plan = parse_query(options.text, table->schema());
  if (!plan.ok()) return fail(context, kExitUsage, plan.status());
  if (!options.index.name.empty()) return scan_index(context, *client, *table, *plan, options.index);
  client::ScanOptions scan;
  scan.explain = options.explain;
  if (options.time_limit_ns != 0) scan.time_limit_ns = options.time_limit_ns;
  PageBar bar;
  // The client's thread calls on_progress while this thread prints, hence the lock in PageBar.
  if (!context.json) scan.on_progress = [&bar](const client::ScanStatistics& so_far) { bar.update(so_far); };
  auto stream = client->scan(*table, plan->query, scan);
  if (!stream.ok()) return fail(context, stream.status());
  if (options.explain) return print_plan(context, *stream);

  auto printer = make_printer(context.format(), output_columns(*plan, stream->schema()), std::cout);
  const Status printed = print_rows(*plan, *stream, *printer, bar);
  bar.end();
  if (!printed.ok()) return fail(context, printed);
  // The rows come before the statistics, also if both streams are one terminal.
  std::cout.flush();
  if (options.statistics) print_statistics(context, stream->statistics());
  return kExitOk;
}

/// Declares the options of the query language.
void add_query(CLI::App* command, QueryText& text) {
  command
      ->add_option(
          "--where", text.where,
          "Condition on records, such as \"dep_delay - arr_delay > 60 and origin = 'JFK'\". docs/cli.md lists the "
          "operators and functions of expressions")
      ->type_name("CONDITION");
  command
      ->add_option("--select", text.select,
                   "Columns to show: \"origin, distance / air_time as speed\"; _key is the record's key")
      ->type_name("EXPRESSIONS");
  command->add_flag("--with-key", text.with_key, "Show the record's key first");
  command
      ->add_option(
          "--aggregate", text.aggregate,
          "Aggregates instead of records: \"count(*), avg(dep_delay) filter (where origin = 'JFK') as delay\". "
          "count, sum, min, max, avg, bool_and, bool_or")
      ->type_name("AGGREGATES");
  command
      ->add_option("--group-by", text.group_by,
                   "One row for each value of these columns: \"origin, date_trunc('month', day) as month\"")
      ->type_name("EXPRESSIONS");
  command
      ->add_option("--having", text.having,
                   "Condition on groups, over columns of the result: \"count(*) > 100 and delay < 10\"")
      ->type_name("CONDITION");
  command->add_option("--order-by", text.order_by, "Columns of the result: \"delay desc, carrier\"")
      ->type_name("COLUMNS");
  command::add_unsigned(*command, "--limit", text.limit, {}, "Maximum number of rows to show; 0: all")
      ->type_name("ROWS");
}

/// Declares the options of a scan in the order of an index.
void add_index_scan(CLI::App* command, IndexScanText& index) {
  auto* by_index = command->add_option("--index", index.name, "Show records in the order of this index")
                       ->type_name("INDEX")
                       ->group("By index");
  command
      ->add_option(
          "--from", index.from,
          "Begin at these values of the index's first fields, as --csv prints them: an empty place is NULL, a value "
          "with a comma is in double quotes")
      ->needs(by_index)
      ->type_name("VALUE,…")
      ->group("By index");
  command->add_option("--to", index.to, "End after the last record that has these values in the index's first fields")
      ->needs(by_index)
      ->type_name("VALUE,…")
      ->group("By index");
  command
      ->add_option("--prefix", index.prefix,
                   "Instead of --from and --to: records whose text or blob begins with the last of these values, and "
                   "that have the other values in the index's first fields")
      ->needs(by_index)
      ->excludes(command->get_option("--from"))
      ->excludes(command->get_option("--to"))
      ->type_name("VALUE,…")
      ->group("By index");
  command->add_flag("--reverse", index.reverse, "Show the records from the last to the first")
      ->needs(by_index)
      ->group("By index");
}

}  // namespace

void add_scan(CLI::App& app, Context& context) {
  auto options = std::make_shared<ScanCommandOptions>();
  CLI::App* command =
      app.add_subcommand("scan", "Query all records of a table, or show records in the order of an index");
  command->add_option("table", options->table, "Name of the table")->required()->type_name("TABLE");
  add_query(command, options->text);
  add_index_scan(command, options->index);
  command::add_duration(*command, "--time-limit", options->time_limit_ns, kTimeLimitNs,
                        "End the scan after this time, such as 2s");
  command->add_flag("--stats,--statistics", options->statistics, "Print the cost of the scan on standard error");
  command->add_flag("--explain", options->explain, "Do not scan; print how the storage nodes would evaluate the query");
  auto* csv = command->add_flag("--csv", context.csv, "Print CSV");
  add_connection(*command, context);
  csv->excludes(command->get_option("--json"));
  set_body(*command, context, [&context, options] { return run_scan(context, *options); });
}

}  // namespace loam::cli
