// `loam demo`: starts a cluster in a temporary folder, imports the flights, runs five queries alone and as one shared
// scan, and then moves money while processes die. deploy/demo has the parts.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <loam/client/client.h>

#include "common/base/env.h"
#include "common/command/number_options.h"
#include "common/program/options.h"
#include "deploy/cli/src/cluster/local_cluster.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/host/interrupt.h"
#include "deploy/cli/src/import/importer.h"
#include "deploy/cli/src/node_memory.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/query/sorted_rows.h"
#include "deploy/demo/fault_injection.h"
#include "deploy/demo/flights.h"

namespace loam::cli {
namespace {

/// Short, so that the cluster notices a dead client while the user watches.
constexpr uint64_t kClientLeaseNs = 500'000'000;

struct DemoCommandOptions {
  std::string flights;
  unsigned duration_s = 10;
  uint64_t memory_bytes = uint64_t{256} << 20;
  FaultInjectionOptions faults;
};

/// A temporary folder for the cluster and its processes. The destructor ends the processes and removes the folder;
/// after keep() it keeps the folder and prints its name.
class Folder {
 public:
  static Result<std::unique_ptr<Folder>> make() {
    std::string pattern = (std::filesystem::temp_directory_path() / "loam-demo-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      return Status(StatusCode::kInternal,
                    fmt::format("cannot make a folder like {}: {}", pattern, std::strerror(errno)));
    }
    return std::unique_ptr<Folder>(new Folder(pattern));
  }
  ~Folder() {
    if (cluster_) end_all();
    std::error_code error;
    if (!keep_folder_) std::filesystem::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// Starts a commit manager and two storage nodes and waits until they are ready.
  Result<LocalCluster*> start(const std::string& memory) {
    constexpr uint64_t kStartNs = 60'000'000'000;
    FolderOptions options;
    options.directory = path_;
    options.memory = memory;
    // The demo must not disturb a cluster on the fixed ports.
    options.free_ports = true;
    options.manager_settings = {{"client-lease", fmt::format("{}ms", kClientLeaseNs / 1'000'000)}};
    LOAM_ASSIGN_OR_RETURN(ClusterFolder folder, ClusterFolder::create(options));
    cluster_ = std::make_unique<LocalCluster>(std::move(folder));
    for (const Member& member : cluster_->folder().members()) LOAM_RETURN_IF_ERROR(cluster_->start(member));
    LOAM_RETURN_IF_ERROR(cluster_->wait_for({}, MemberState::kReady, kStartNs, [](const auto&) {}));
    return cluster_.get();
  }
  const std::filesystem::path& path() const { return path_; }
  void keep() { keep_folder_ = true; }

 private:
  explicit Folder(std::filesystem::path path) : path_(std::move(path)) {}
  void end_all() {
    constexpr uint64_t kGracePeriodNs = 5'000'000'000;
    const auto& members = cluster_->folder().members();
    for (auto member = members.rbegin(); member != members.rend(); ++member) cluster_->stop(*member, kGracePeriodNs);
  }

  const std::filesystem::path path_;
  std::unique_ptr<LocalCluster> cluster_;
  bool keep_folder_ = false;
};

/// Runs the three parts of the demo and collects their results for the final object of --json.
class Demo {
 public:
  Demo(const Context& context, const DemoCommandOptions& options) : context_(context), options_(options) {}

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
    // The expected answers come first: a wrong file costs no start of a cluster.
    auto expected = expected_results(path);
    if (!expected.ok()) return fail(context_, kExitBadData, expected.status());
    // From here on a signal only sets a flag, so that the destructor of `folder` can end the processes.
    catch_interrupts();
    auto folder = Folder::make();
    if (!folder.ok()) return fail(context_, kExitNotStarted, folder.status());
    const uint64_t begin_ns = Env::now_ns();
    auto cluster = (*folder)->start(program::size_text(options_.memory_bytes));
    if (!cluster.ok()) return fail(context_, kExitNotStarted, cluster.status());
    say(fmt::format("A commit manager and two storage nodes run as processes of their own, since {}; {}.\n",
                    format_duration(Env::now_ns() - begin_ns), (*cluster)->folder().manager().address));
    if (!std::cout) return kExitFailed;  // the reader of the output has gone; main() reports it
    const Status status = play(**cluster, path, *expected);
    if (status == StatusCode::kCancelled && interrupted()) return kExitInterrupted;
    // The logs of the servers explain what went wrong, so the folder stays.
    if (!status.ok() || !wrong_.empty()) {
      (*folder)->keep();
      std::cerr << fmt::format("loam: the logs are in {}\n", (*folder)->path().string());
    }
    if (!status.ok()) {
      return fail(context_, status == StatusCode::kMalformed ? kExitBadData : kExitFailed, status);
    }
    return conclude();
  }

 private:
  Status play(LocalCluster& cluster, const std::string& path, const std::vector<ResultRows>& expected) {
    LOAM_RETURN_IF_ERROR(query_flights(cluster.folder().manager().address, path, expected));
    if (interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    return move_money(cluster);
  }

  Status query_flights(const std::string& address, const std::string& path, const std::vector<ResultRows>& expected) {
    client::ClientOptions name;
    name.name = "loam demo";
    LOAM_ASSIGN_OR_RETURN(const auto client, client::Client::connect(address, name));
    LOAM_RETURN_IF_ERROR(import_flights(*client, path));
    LOAM_ASSIGN_OR_RETURN(const client::Table table, client->open_table("flights"));
    LOAM_RETURN_IF_ERROR(run_one_by_one(*client, table, expected));
    return run_as_shared_scan(*client, table, expected);
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
    say(fmt::format("Imported {} flights from {} in {} ({} rows/s).\n", with_thousands_separators(rows),
                    std::filesystem::path(path).filename().string(), format_duration(took_ns),
                    with_thousands_separators(rate)));
    result_["import"] = {{"rows", rows}, {"ns", took_ns}, {"rows_per_s", rate}};
    return ok_status();
  }

  Status run_one_by_one(client::Client& client, const client::Table& table, const std::vector<ResultRows>& expected) {
    const std::vector<FlightQuery> questions = flight_queries();
    for (size_t i = 0; i < questions.size(); ++i) {
      LOAM_ASSIGN_OR_RETURN(const QueryPlan plan, parse_query(questions[i].text, table.schema()));
      LOAM_ASSIGN_OR_RETURN(client::ScanStream stream, client.scan(table, plan.query));
      std::vector<OutputColumn> columns = output_columns(plan, stream.schema());
      LOAM_ASSIGN_OR_RETURN(const ResultRows rows, answer(plan, stream));
      const uint64_t took_ns = stream.statistics().elapsed_ns;
      const bool right = check(fmt::format("question {}", i + 1), rows, expected[i]);
      result_["questions"].push_back(
          {{"question", questions[i].title}, {"ns", took_ns}, {"rows", rows.size()}, {"right", right}});
      if (context_.json) continue;
      std::cout << fmt::format("{}. {}  {}, {}\n", i + 1, questions[i].title, format_duration(took_ns),
                               right ? "as the file says" : "WRONG");
      auto printer = make_printer(OutputFormat::kTable, std::move(columns), std::cout);
      for (size_t k = 0; k < std::min(rows.size(), questions[i].shown_rows); ++k) printer->row(rounded(rows[k]));
      printer->finish();
      if (rows.size() > questions[i].shown_rows) std::cout << fmt::format("… of {}\n", rows.size());
      std::cout << std::endl;
    }
    return ok_status();
  }

  // Runs all five queries in one snapshot; the storage nodes answer them in one pass over the records.
  Status run_as_shared_scan(client::Client& client, const client::Table& table,
                            const std::vector<ResultRows>& expected) {
    std::vector<QueryPlan> questions;
    std::vector<client::ScanRequest> requests;
    for (const FlightQuery& one : flight_queries()) {
      LOAM_ASSIGN_OR_RETURN(QueryPlan plan, parse_query(one.text, table.schema()));
      requests.push_back({table, plan.query});
      questions.push_back(std::move(plan));
    }
    // The time covers all five answers, because the storage nodes send them together.
    const uint64_t begin_ns = Env::now_ns();
    LOAM_ASSIGN_OR_RETURN(std::vector<client::ScanStream> streams, client.scan(requests));
    std::vector<ResultRows> answers;
    for (size_t i = 0; i < streams.size(); ++i) {
      LOAM_ASSIGN_OR_RETURN(ResultRows rows, answer(questions[i], streams[i]));
      answers.push_back(std::move(rows));
    }
    const uint64_t took_ns = Env::now_ns() - begin_ns;
    bool right = true;
    for (size_t i = 0; i < answers.size(); ++i) {
      right &= check(fmt::format("question {} among the others", i + 1), answers[i], expected[i]);
    }
    say(fmt::format("All five at once, by one shared scan in one snapshot: {}, {}.\n", format_duration(took_ns),
                    right ? "as the file says" : "WRONG"));
    result_["all_at_once"] = {{"ns", took_ns}, {"right", right}};
    return ok_status();
  }

  Status move_money(LocalCluster& cluster) {
    FaultInjectionOptions faults = options_.faults;
    faults.duration_ns = uint64_t{options_.duration_s} * 1'000'000'000;
    faults.lease_ns = kClientLeaseNs;
    std::error_code error;
    // The client processes run the same program as the demo, even if PATH names another one.
    faults.program = std::filesystem::read_symlink("/proc/self/exe", error);
    faults.say = [this](const std::string& text) { say("  " + text); };
    say(
        fmt::format("Two client processes of {} fibers move money between {} accounts for {} s or longer, while scans "
                    "sum all balances …",
                    faults.fibers, with_thousands_separators(faults.accounts), options_.duration_s));
    LOAM_ASSIGN_OR_RETURN(const FaultInjectionReport report, run_fault_injection(cluster, faults));
    wrong_.insert(wrong_.end(), report.wrong.begin(), report.wrong.end());
    result_["transfers"] = to_json(report);
    say("\n" + format_report(report, faults));
    return ok_status();
  }

  int conclude() {
    result_["checks_hold"] = wrong_.empty();
    result_["wrong"] = wrong_;
    if (context_.json) {
      std::cout << json_line(result_) << std::endl;
    } else if (wrong_.empty()) {
      std::cout << "Every answer is what the file says, every sum is exact, and every transfer that was acknowledged "
                   "is there."
                << std::endl;
    } else {
      for (const std::string& wrong : wrong_) std::cerr << "loam: wrong: " << wrong << "\n";
    }
    return wrong_.empty() ? kExitOk : kExitCheckFailed;
  }

  Result<ResultRows> answer(const QueryPlan& plan, client::ScanStream& stream) {
    // SortedRows also keeps the order of arrival if the query has no order.
    SortedRows sorted(plan);
    for (;;) {
      LOAM_ASSIGN_OR_RETURN(const auto chunk, stream.next());
      if (chunk == nullptr) break;
      LOAM_RETURN_IF_ERROR(sorted.add(chunk->view()));
    }
    return sorted.take();
  }

  bool check(const std::string& what, const ResultRows& rows, const ResultRows& expected) {
    const Status status = compare_results(rows, expected);
    if (!status.ok()) wrong_.push_back(fmt::format("{}: {}", what, status.message()));
    return status.ok();
  }

  // The row with its decimal numbers rounded to two places, for people.
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
  const DemoCommandOptions& options_;
  std::vector<std::string> wrong_;
  nlohmann::ordered_json result_;
};

}  // namespace

void add_demo(CLI::App& app, Context& context) {
  auto options = std::make_shared<DemoCommandOptions>();
  CLI::App* command = app.add_subcommand("demo",
                                         "Demonstrate import, shared scans and transactions on a cluster while some of "
                                         "its processes die, and check all results");
  command->add_option("--flights", options->flights, "File of flights; without it, the flights of January 2013")
      ->type_name("FILE");
  command::add_unsigned(*command, "--duration", options->duration_s, {1, 3'600},
                        "Minimum duration of the transfers, seconds");
  command::add_unsigned(*command, "--accounts", options->faults.accounts, {2, 10'000'000}, "Number of accounts");
  command::add_unsigned(*command, "--fibers", options->faults.fibers, {1, 2'000},
                        "Concurrent transfers of each of the two client processes");
  command::add_unsigned(*command, "--seed", options->faults.seed, {}, "Seed of the random accounts and amounts");
  command::add_size(*command, "--memory", options->memory_bytes, kNodeMemoryRange, "Memory of each storage node");
  command->add_flag("--calm", options->faults.fault_free, "Kill and pause no process");
  add_json(*command, context);
  set_body(*command, context, [&context, options] { return Demo(context, *options).run(); });
}

}  // namespace loam::cli
