#include <iostream>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/output/figures.h"
#include "deploy/cli/src/output/json_line.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

// "memory_used_bytes" and the like by what they are; everything else as a number with separators.
std::string shown(const std::string& name, const Json& value) {
  if (!value.is_number_unsigned()) return value.is_string() ? value.get<std::string>() : value.dump();
  const auto number = value.get<uint64_t>();
  if (name.ends_with("_bytes") || name.starts_with("bytes_")) return bytes_for_people(number);
  if (name.ends_with("_ns")) return time_for_people(number);
  return grouped(number);
}

void print_fields(const Json& object) {
  size_t width = 0;
  for (const auto& [name, value] : object.items()) width = std::max(width, name.size());
  for (const auto& [name, value] : object.items()) {
    if (value.is_structured()) continue;
    std::cout << fmt::format("  {:<{}}  {:>14}\n", name, width, shown(name, value));
  }
}

void print_tables(const Json& tables) {
  if (tables.empty()) return;
  std::vector<OutputColumn> columns;
  for (const auto& [name, value] : tables.front().items()) {
    columns.push_back({name, value.is_string() ? FieldType::kText : FieldType::kUint64});
  }
  auto printer = make_printer(OutputFormat::kTable, columns, std::cout);
  for (const Json& table : tables) {
    std::vector<Value> row;
    for (const auto& [name, value] : table.items()) {
      row.push_back(value.is_string() ? Value::text(value.get<std::string>()) : Value::uint64(value.get<uint64_t>()));
    }
    printer->row(row);
  }
  printer->finish();
}

int run(const Context& context) {
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  const std::string address = client->admin_address();
  if (address.empty()) return fail(context, kExitFailed, "the commit manager runs without administration (--admin)");
  auto statistics = cluster_statistics(address);
  if (!statistics.ok()) return fail(context, statistics.status());
  if (context.json) {
    std::cout << json_line(*statistics) << "\n";
    return kExitOk;
  }
  std::cout << "commit manager\n";
  print_fields((*statistics)["manager"]);
  for (const Json& node : (*statistics)["nodes"]) {
    std::cout << fmt::format("\nstorage node {} at {}{}\n", node["id"].get<uint64_t>(),
                             node["address"].get<std::string>(), node["live"].get<bool>() ? "" : " (dead)");
    if (node.contains("error")) std::cout << "  " << node["error"].get<std::string>() << "\n";
    if (!node.contains("statistics")) continue;
    print_fields(node["statistics"]);
    std::cout << "\n";
    print_tables(node["statistics"]["tables"]);
  }
  return kExitOk;
}

}  // namespace

void add_stats(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("stats", "Statistics of the commit manager, the storage nodes and their tables");
  add_connection(*command, context);
  set_body(*command, context, [&context] { return run(context); });
}

}  // namespace loam::cli
