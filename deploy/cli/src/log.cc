// `loam log inspect`: reads a commit log from its file, without a commit manager. The format is that of
// commit::read_log().
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <loam/commit/log_format.h>

#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"

namespace loam::cli {
namespace {

struct LogCommandOptions {
  std::string path;
  bool ranges = false;
};

Result<std::string> read_log_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  if (file) content << file.rdbuf();
  if (!file) {
    return Status(StatusCode::kNotFound,
                  fmt::format("{} cannot be read: {}", path, std::generic_category().message(errno)));
  }
  return std::move(content).str();
}

std::string_view meaning(commit::LogTail tail) {
  switch (tail) {
    case commit::LogTail::kClean:
      return "ends with a whole log record";
    case commit::LogTail::kTorn:
      return "ends within a log record: a write was cut off, or is in progress";
    case commit::LogTail::kZeroFilled:
      return "ends with zeros: the host lost power before the bytes were on the disk";
    case commit::LogTail::kDamaged:
      break;
  }
  return "is damaged: the checksum of the next log record is wrong";
}

void print_log_as_text(const std::string& path, uint64_t bytes, const commit::LogReadResult& log, bool ranges) {
  const std::vector<commit::IdRange>& committed = log.contents.committed;
  std::cout << fmt::format("{}: a commit log of format {}, {} bytes\n", path, commit::kLogFormat,
                           with_thousands_separators(bytes));
  std::cout << fmt::format("checkpoint {} bytes: {} commits until then; {} ids in {} ranges; truncated up to id {}\n",
                           with_thousands_separators(log.checkpoint_bytes),
                           with_thousands_separators(log.checkpoint_end), with_thousands_separators(log.checkpoint_ids),
                           with_thousands_separators(log.checkpoint_ranges), log.contents.truncated_up_to.value);
  std::cout << fmt::format(
      "batches    {}, with {} commits: {} commits in all\n", with_thousands_separators(log.records),
      with_thousands_separators(log.contents.end - log.checkpoint_end), with_thousands_separators(log.contents.end));
  std::cout << fmt::format("committed  {} ids in {} ranges", with_thousands_separators(commit::count_ids(committed)),
                           with_thousands_separators(committed.size()));
  if (!committed.empty()) {
    std::cout << fmt::format(", from {} to {}", committed.front().first.value, committed.back().last.value);
  }
  std::cout << fmt::format("\ntail       {}", meaning(log.tail));
  if (log.tail != commit::LogTail::kClean) {
    std::cout << fmt::format("; {} bytes are valid, {} are not", with_thousands_separators(log.valid_bytes),
                             with_thousands_separators(bytes - log.valid_bytes));
  }
  std::cout << "\n";
  if (!ranges) return;
  for (const commit::IdRange& range : committed) {
    std::cout << range.first.value;
    if (range.first != range.last) std::cout << "-" << range.last.value;
    std::cout << "\n";
  }
}

void print_log_as_json(const std::string& path, uint64_t bytes, const commit::LogReadResult& log, bool ranges) {
  const std::vector<commit::IdRange>& committed = log.contents.committed;
  nlohmann::ordered_json object = {
      {"path", path},
      {"format", commit::kLogFormat},
      {"bytes", bytes},
      {"checkpoint",
       {{"bytes", log.checkpoint_bytes},
        {"end", log.checkpoint_end},
        {"truncated_up_to", log.contents.truncated_up_to.value},
        {"ranges", log.checkpoint_ranges},
        {"ids", log.checkpoint_ids}}},
      {"batches", log.records},
      {"commits", log.contents.end - log.checkpoint_end},
      {"end", log.contents.end},
      {"committed", {{"ranges", committed.size()}, {"ids", commit::count_ids(committed)}}},
      {"valid_bytes", log.valid_bytes},
      {"tail", commit::to_string(log.tail)},
  };
  if (ranges) {
    nlohmann::ordered_json& list = object["ranges"] = nlohmann::ordered_json::array();
    for (const commit::IdRange& range : committed) list.push_back({range.first.value, range.last.value});
  }
  std::cout << json_line(object) << "\n";
}

int inspect_log(const Context& context, const LogCommandOptions& options) {
  std::error_code error;
  std::string path = options.path;
  // Accepts the folder of the commit manager, too, as its option --data names it.
  if (std::filesystem::is_directory(path, error)) path += "/commit-log";
  const auto content = read_log_file(path);
  if (!content.ok()) return fail(context, kExitFailed, content.status());
  // Checks a copy in memory, because a commit manager may append to the file meanwhile. The last log record of the copy
  // may be incomplete, which counts as a torn tail.
  const auto log = commit::read_log(as_bytes(*content));
  if (!log.ok()) return fail(context, kExitBadData, fmt::format("{}: {}", path, log.status().message()));
  if (context.json) {
    print_log_as_json(path, content->size(), *log, options.ranges);
  } else {
    print_log_as_text(path, content->size(), *log, options.ranges);
  }
  return kExitOk;
}

}  // namespace

void add_log(CLI::App& app, Context& context) {
  auto options = std::make_shared<LogCommandOptions>();
  CLI::App* command = app.add_subcommand("log", "Inspect the commit log of a commit manager");
  command->require_subcommand(1);
  CLI::App* inspecting = command->add_subcommand(
      "inspect", "Print the content of a commit log; a commit manager may write to it meanwhile");
  inspecting->add_option("path", options->path, "The commit log, a copy of it, or its folder (--data)")
      ->required()
      ->type_name("FILE");
  inspecting->add_flag("--ranges", options->ranges, "Also print all ranges of committed ids");
  add_json(*inspecting, context);
  set_body(*inspecting, context, [&context, options] { return inspect_log(context, *options); });
}

}  // namespace loam::cli
