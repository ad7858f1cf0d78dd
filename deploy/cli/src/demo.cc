#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/env.h"
#include "common/base/log.h"
#include "deploy/cli/src/cluster/one_process.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/demo/flights.h"
#include "deploy/cli/src/demo/transfers.h"
#include "deploy/cli/src/import/importer.h"
#include "deploy/cli/src/output/figures.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/query/sorted_rows.h"

namespace loam::cli {
namespace {

constexpr const char* kSampleName = "flights-2013-01.csv.gz";

struct Options {
  std::string flights;
  unsigned seconds = 10;
  TransferOptions transfers;
  std::string memory = "1GiB";
};

// LOAM_DATA, then where the program is installed, then where it is built inside the source tree.
std::optional<std::string> find_sample() {
  namespace fs = std::filesystem;
  std::vector<fs::path> places;
  if (const char* directory = std::getenv("LOAM_DATA"); directory != nullptr) places.emplace_back(directory);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    places.push_back(program.parent_path() / "../share/loam");
    for (fs::path up = program.parent_path(); up != up.parent_path(); up = up.parent_path()) {
      places.push_back(up / "deploy/cli/data");
    }
  }
  for (const fs::path& place : places) {
    if (fs::exists(place / kSampleName, error)) return fs::weakly_canonical(place / kSampleName, error).string();
  }
  return std::nullopt;
}

/// Runs the three acts and keeps what they found for the final object of --json.
class Demo {
 public:
  Demo(const Context& context, const Options& options) : context_(context), options_(options) {}

  int run() {
    std::string path = options_.flights;
    if (path.empty()) {
      const auto sample = find_sample();
      if (!sample) {
        return fail(
            context_, kExitBadData,
            fmt::format("{} is not found; name its directory in LOAM_DATA, or a file with --flights", kSampleName));
      }
      path = *sample;
    }
    auto expected = expected_answers(path);
    if (!expected.ok()) return fail(context_, kExitBadData, expected.status());
    OneProcessOptions cluster_options = OneProcessOptions::on_free_ports();
    auto memory = parse_bytes(options_.memory);
    if (!memory.ok()) return fail(context_, kExitUsage, "--memory: " + std::string(memory.status().message()));
    cluster_options.node.memory_bytes = *memory;
    auto cluster = OneProcessCluster::start(cluster_options);
    if (!cluster.ok()) return fail(context_, kExitNotStarted, cluster.status());
    say(fmt::format("A commit manager at {} and a storage node at {}, in this process, over TCP.\n",
                    (*cluster)->address(), (*cluster)->node().address()));
    const Status status = play((*cluster)->address(), path, *expected);
    (*cluster)->stop();
    if (!status.ok()) {
      return fail(context_, status == StatusCode::kMalformed ? kExitBadData : kExitFailed, status);
    }
    return conclude();
  }

 private:
  Status play(const std::string& address, const std::string& path, const std::vector<AnswerRows>& expected) {
    client::ClientOptions name;
    name.name = "loam demo";
    LOAM_ASSIGN_OR_RETURN(const auto client, client::Client::connect(address, name));
    LOAM_RETURN_IF_ERROR(import_flights(*client, path));
    LOAM_ASSIGN_OR_RETURN(const client::Table table, client->open_table("flights"));
    LOAM_RETURN_IF_ERROR(ask_one_by_one(*client, table, expected));
    LOAM_RETURN_IF_ERROR(ask_all_at_once(*client, table, expected));
    LOAM_ASSIGN_OR_RETURN(const auto watcher, client::Client::connect(address, name));
    return move_money(*client, *watcher);
  }

  Status import_flights(client::Client& client, const std::string& path) {
    ImportOptions import;
    import.table = "flights";
    import.path = path;
    const uint64_t begin_ns = Env::now_ns();
    LOAM_ASSIGN_OR_RETURN(const ImportReport report, import_file(client, import));
    LOAM_RETURN_IF_ERROR(report.outcome.fatal);
    if (report.outcome.bad > 0) return Status(StatusCode::kMalformed, path + ": " + report.outcome.bad_rows[0].message);
    const uint64_t took_ns = Env::now_ns() - begin_ns;
    const uint64_t rows = report.outcome.imported;
    const auto rate = static_cast<uint64_t>(static_cast<double>(rows) * 1e9 / static_cast<double>(took_ns));
    say(fmt::format("Imported {} flights from {} in {} ({} rows/s).\n", grouped(rows),
                    std::filesystem::path(path).filename().string(), time_for_people(took_ns), grouped(rate)));
    result_["import"] = {{"rows", rows}, {"ns", took_ns}, {"rows_per_s", rate}};
    return ok_status();
  }

  Status ask_one_by_one(client::Client& client, const client::Table& table, const std::vector<AnswerRows>& expected) {
    const std::vector<FlightQuestion> questions = flight_questions();
    for (size_t i = 0; i < questions.size(); ++i) {
      LOAM_ASSIGN_OR_RETURN(const Question question, parse_question(questions[i].text, table.schema()));
      LOAM_ASSIGN_OR_RETURN(client::ScanStream stream, client.scan(table, question.query));
      std::vector<OutputColumn> columns = output_columns(question, stream.schema());
      LOAM_ASSIGN_OR_RETURN(const AnswerRows rows, answer(question, stream));
      const uint64_t took_ns = stream.statistics().elapsed_ns;
      const bool right = check(fmt::format("question {}", i + 1), rows, expected[i]);
      result_["questions"].push_back(
          {{"question", questions[i].title}, {"ns", took_ns}, {"rows", rows.size()}, {"right", right}});
      if (context_.json) continue;
      std::cout << fmt::format("{}. {}  {}, {}\n", i + 1, questions[i].title, time_for_people(took_ns),
                               right ? "as the file says" : "WRONG");
      auto printer = make_printer(OutputFormat::kTable, std::move(columns), std::cout);
      for (size_t k = 0; k < std::min(rows.size(), questions[i].shown_rows); ++k) printer->row(rounded(rows[k]));
      printer->finish();
      if (rows.size() > questions[i].shown_rows) std::cout << fmt::format("… of {}\n", rows.size());
      std::cout << std::endl;
    }
    return ok_status();
  }

  // All five in one snapshot, which the node answers in one pass over the records.
  Status ask_all_at_once(client::Client& client, const client::Table& table, const std::vector<AnswerRows>& expected) {
    std::vector<Question> questions;
    std::vector<client::ScanRequest> requests;
    for (const FlightQuestion& one : flight_questions()) {
      LOAM_ASSIGN_OR_RETURN(Question question, parse_question(one.text, table.schema()));
      requests.push_back({table, question.query});
      questions.push_back(std::move(question));
    }
    const uint64_t begin_ns = Env::now_ns();
    LOAM_ASSIGN_OR_RETURN(std::vector<client::ScanStream> streams, client.scan(requests));
    std::vector<AnswerRows> answers;
    for (size_t i = 0; i < streams.size(); ++i) {
      LOAM_ASSIGN_OR_RETURN(AnswerRows rows, answer(questions[i], streams[i]));
      answers.push_back(std::move(rows));
    }
    const uint64_t took_ns = Env::now_ns() - begin_ns;
    bool right = true;
    for (size_t i = 0; i < answers.size(); ++i) {
      right &= check(fmt::format("question {} among the others", i + 1), answers[i], expected[i]);
    }
    say(fmt::format("All five at once, by one shared scan in one snapshot: {}, {}.\n", time_for_people(took_ns),
                    right ? "as the file says" : "WRONG"));
    result_["all_at_once"] = {{"ns", took_ns}, {"right", right}};
    return ok_status();
  }

  Status move_money(client::Client& mover, client::Client& watcher) {
    TransferOptions transfers = options_.transfers;
    transfers.duration_ns = uint64_t{options_.seconds} * 1'000'000'000;
    LOAM_ASSIGN_OR_RETURN(const client::Table table, open_accounts(mover, transfers));
    say(fmt::format("{} fibers move money between {} accounts for {} s, while scans sum all balances …",
                    transfers.fibers, grouped(transfers.accounts), options_.seconds));
    const TransferReport report = run_transfers(mover, watcher, table, transfers);
    for (const std::string& wrong : report.wrong) wrong_.push_back(wrong);
    print_transfers(report);
    return ok_status();
  }

  void print_transfers(const TransferReport& report) {
    const client::ClientStatistics& s = report.statistics;
    const double transfers = static_cast<double>(std::max<uint64_t>(report.transfers, 1));
    const auto each = [&](uint64_t count) { return static_cast<double>(count) / transfers; };
    const double rate = static_cast<double>(report.transfers) / report.seconds;
    const double scan_rate = static_cast<double>(report.scans) / report.scan_seconds;
    const uint64_t attempts = s.committed + s.aborted;
    const double abort_share = attempts == 0 ? 0 : static_cast<double>(s.aborted) / static_cast<double>(attempts);
    result_["transfers"] = {{"transactions", report.transfers},
                            {"transactions_per_s", rate},
                            {"aborts", s.aborted},
                            {"conflicts", s.conflicts},
                            {"abort_share", abort_share},
                            {"given_up", report.given_up},
                            {"p50_ns", report.latencies.p50_ns},
                            {"p99_ns", report.latencies.p99_ns},
                            {"p999_ns", report.latencies.p999_ns},
                            {"max_ns", report.latencies.max_ns},
                            {"scans", report.scans},
                            {"scans_per_s", scan_rate},
                            {"messages_per_transaction", each(s.messages_sent + s.messages_received)},
                            {"frames_per_transaction", each(s.frames_sent + s.frames_received)},
                            {"bytes_per_transaction", each(s.bytes_sent + s.bytes_received)},
                            {"sums_exact", report.ok()}};
    if (context_.json) return;
    const auto line = [](std::string_view name, const std::string& value) {
      std::cout << fmt::format("  {:<26}{:>14}\n", name, value);
    };
    std::cout << "\n";
    line("transactions", grouped(report.transfers));
    line("transactions/s", grouped(static_cast<uint64_t>(rate)));
    line("aborts (retried)", fmt::format("{} ({:.2f} %)", grouped(s.aborted), abort_share * 100));
    line("latency p50", time_for_people(report.latencies.p50_ns));
    line("latency p99", time_for_people(report.latencies.p99_ns));
    line("latency p99.9", time_for_people(report.latencies.p999_ns));
    line("latency max", time_for_people(report.latencies.max_ns));
    line("sums of all balances", grouped(report.scans));
    line("sums/s", fmt::format("{:.1f}", scan_rate));
    line("messages a transaction", fmt::format("{:.2f}", each(s.messages_sent + s.messages_received)));
    line("frames a transaction", fmt::format("{:.2f}", each(s.frames_sent + s.frames_received)));
    line("bytes a transaction", fmt::format("{:.0f}", each(s.bytes_sent + s.bytes_received)));
    std::cout << std::endl;
  }

  int conclude() {
    result_["checks_hold"] = wrong_.empty();
    result_["wrong"] = wrong_;
    if (context_.json) {
      std::cout << json_line(result_) << std::endl;
    } else if (wrong_.empty()) {
      std::cout << "Every answer is what the file says, every sum and every balance is exact." << std::endl;
    } else {
      for (const std::string& wrong : wrong_) std::cerr << "loam: wrong: " << wrong << "\n";
    }
    return wrong_.empty() ? kExitOk : kExitCheckFailed;
  }

  Result<AnswerRows> answer(const Question& question, client::ScanStream& stream) {
    SortedRows sorted(question);
    for (;;) {
      LOAM_ASSIGN_OR_RETURN(const auto chunk, stream.next());
      if (chunk == nullptr) break;
      LOAM_RETURN_IF_ERROR(sorted.add(chunk->view()));
    }
    return sorted.take();
  }

  bool check(const std::string& what, const AnswerRows& rows, const AnswerRows& expected) {
    const Status status = compare_answers(rows, expected);
    if (!status.ok()) wrong_.push_back(fmt::format("{}: {}", what, status.message()));
    return status.ok();
  }

  // Means to two places: a table for people.
  static std::vector<Value> rounded(std::vector<Value> row) {
    for (Value& value : row) {
      if (!value.is_null() && is_float(value.type())) value = Value::text(fmt::format("{:.2f}", value.as_float64()));
    }
    return row;
  }

  void say(const std::string& text) const {
    if (!context_.json) std::cout << text << std::endl;
  }

  const Context& context_;
  const Options& options_;
  std::vector<std::string> wrong_;
  nlohmann::ordered_json result_;
};

}  // namespace

void add_demo(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("demo", "Watch a whole cluster work: import, shared scans, transactions; all of it checked");
  command->add_option("--flights", options->flights, "Another file of flights; without it those of January 2013")
      ->type_name("FILE");
  command->add_option("--seconds", options->seconds, "How long money moves")
      ->check(CLI::Range(1, 3'600))
      ->capture_default_str();
  command->add_option("--accounts", options->transfers.accounts, "Accounts")
      ->check(CLI::Range(2, 10'000'000))
      ->capture_default_str();
  command->add_option("--fibers", options->transfers.fibers, "Transfers at once")
      ->check(CLI::Range(1, 4'000))
      ->capture_default_str();
  command->add_option("--seed", options->transfers.seed, "Of the random accounts and amounts")->capture_default_str();
  command->add_option("--memory", options->memory, "Memory of the storage node")
      ->type_name("SIZE")
      ->capture_default_str();
  add_json(*command, context);
  set_body(*command, context, [&context, options] {
    set_log_level(LogLevel::kWarning);  // the cluster's comings and goings are not the demo's subject
    return Demo(context, *options).run();
  });
}

}  // namespace loam::cli
