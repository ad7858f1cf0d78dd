// `loam support-bundle`: collects what engineers need to examine a cluster, in one archive.
#include <array>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/command/number_options.h"
#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/bundle/archive_writer.h"
#include "deploy/cli/src/bundle/collector.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/doctor.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BundleCommandOptions {
  std::string output;
  std::vector<std::string> nodes;
  uint64_t log_lines = 1'000;
};

/// Returns the present time in UTC, such as 20240711T100000Z.
std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &utc)};
}

/// Returns the address to ask for the commit manager. Unlike administration(), it needs no commit manager that answers.
std::string manager_address(const Context& context) {
  if (!context.admin.empty()) return context.admin;
  std::string guess = default_administration(context);
  constexpr uint64_t kAnswerWithinNs = 1'000'000'000;
  if (!guess.empty() && manager_health(guess, kAnswerWithinNs).ok()) return guess;
  // A commit manager may have its administration elsewhere. Only a session tells where.
  client::ClientOptions options;
  options.name = context.name;
  const std::string address =
      context.connect.find("://") == std::string::npos ? "tcp://" + context.connect : context.connect;
  const auto client = client::Client::connect(address, options);
  return client.ok() && !(*client)->admin_address().empty() ? (*client)->admin_address() : guess;
}

std::string findings_of_this_host() {
  std::string lines;
  for (const Finding& finding : run_checks(default_doctor_options())) lines += json_line(to_json(finding)) + "\n";
  return lines;
}

void print(const Json& manifest, const std::string& path, uint64_t bytes) {
  for (const Json& one : manifest["not_collected"]) {
    std::cout << fmt::format("not collected: {}: {}\n", one["path"].get<std::string>(),
                             one["reason"].get<std::string>());
  }
  std::cout << fmt::format("{}: {} files, {}\n", path, manifest["files"].size(), format_bytes(bytes));
}

/// Writes the archive. Returns an error only if the archive cannot be written.
Result<uint64_t> write(const Context& context, const BundleCommandOptions& options, const std::string& name,
                       Json& manifest, bool& complete) {
  LOAM_ASSIGN_OR_RETURN(const auto archive, ArchiveWriter::open(options.output));
  const auto add_file = [&](const std::string& file, std::string_view content) {
    return archive->add(name + "/" + file, content);
  };
  const auto progress = [&](const std::string& what) {
    if (!context.json) std::cerr << "asking " << what << std::endl;
  };
  progress("this host");
  BundleCollector collector(
      {.manager = manager_address(context), .nodes = options.nodes, .log_lines = options.log_lines}, add_file,
      progress);
  LOAM_RETURN_IF_ERROR(collector.add("host/version.json", json_line({{"version", LOAM_VERSION}}) + "\n"));
  LOAM_RETURN_IF_ERROR(collector.add("host/doctor.json", findings_of_this_host()));
  LOAM_RETURN_IF_ERROR(collector.run());
  complete = collector.complete();
  manifest = {{"bundle", name}, {"version", LOAM_VERSION}, {"complete", complete}};
  manifest.update(collector.manifest());
  LOAM_RETURN_IF_ERROR(add_file("manifest.json", manifest.dump(2) + "\n"));
  return archive->finish();
}

int run_support_bundle(const Context& context, BundleCommandOptions options) {
  const std::string name = "loam-support-" + time_text();
  if (options.output.empty()) options.output = name + ".tar.gz";
  Json manifest;
  bool complete = false;
  const auto bytes = write(context, options, name, manifest, complete);
  if (!bytes.ok()) return fail(context, kExitFailed, bytes.status());
  manifest["output"] = options.output;
  manifest["output_bytes"] = *bytes;
  if (context.json) {
    std::cout << json_line(manifest) << "\n";
  } else {
    print(manifest, options.output, *bytes);
  }
  return complete ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_support_bundle(CLI::App& app, Context& context) {
  auto options = std::make_shared<BundleCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "support-bundle",
      "Collect versions, options, logs and statistics of all servers in an archive, without records; exit code 6 if a "
      "server does not answer");
  command->add_option("--output", options->output, "Archive to write, .tar.gz; default: loam-support-TIME.tar.gz here")
      ->type_name("FILE");
  command
      ->add_option("--node", options->nodes,
                   "Administration of a storage node that the commit manager cannot name, because it does not answer")
      ->type_name("HOST:PORT");
  constexpr uint64_t kMaxLogLines = 1'000'000;
  command::add_unsigned(*command, "--log-lines", options->log_lines, {0, kMaxLogLines},
                        "Newest lines of each server's log; a server keeps 1,000")
      ->type_name("N");
  add_administration(*command, context);
  set_body(*command, context, [&context, options] { return run_support_bundle(context, *options); });
}

}  // namespace loam::cli
