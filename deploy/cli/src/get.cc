#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "deploy/cli/src/commands.h"

namespace loam::cli {
namespace {

struct Options {
  std::string table;
  std::vector<std::string> keys;
  std::vector<std::string> fields;  // empty: all
  bool version = false;
};

// All keys in one snapshot, or the newest versions in a non-transactional table.
Result<std::vector<Result<client::Record>>> read(client::Client& client, const client::Table& table,
                                                 const std::vector<Key>& keys) {
  if (table.kind() == TableKind::kNonTransactional) {
    LOAM_ASSIGN_OR_RETURN(client::PlainTable plain, client.plain(table));
    return plain.get_many(keys);
  }
  LOAM_ASSIGN_OR_RETURN(client::Transaction transaction, client.begin({.read_only = true, .retry = {}}));
  return transaction.get_many(table, keys);
}

Result<client::Table> shown(const client::Table& table, const std::vector<std::string>& fields) {
  if (fields.empty()) return table;
  return table.project(std::vector<std::string_view>(fields.begin(), fields.end()));
}

int run(const Context& context, const Options& options) {
  std::vector<Key> keys;
  for (const std::string& text : options.keys) {
    auto key = parse_key(text);
    if (!key.ok()) return fail(context, kExitBadData, key.status());
    keys.push_back(*key);
  }
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  auto opened = client->open_table(options.table);
  if (!opened.ok()) return fail(context, opened.status());
  auto table = shown(*opened, options.fields);
  if (!table.ok()) return fail(context, kExitUsage, table.status());
  auto records = read(*client, *table, keys);
  if (!records.ok()) return fail(context, records.status());

  std::vector<OutputColumn> columns = {{"_key", FieldType::kUint64}};
  if (options.version) columns.push_back({"_version", FieldType::kUint64});
  for (const Field& field : table->schema().fields()) columns.push_back({field.name, field.type});
  auto printer = make_printer(context.format(), columns, std::cout);
  exit_code = kExitOk;
  for (size_t i = 0; i < keys.size(); ++i) {
    const Result<client::Record>& record = (*records)[i];
    if (!record.ok()) {
      exit_code =
          record.code() == StatusCode::kNotFound
              ? fail(context, kExitFailed, fmt::format("table {} has no record {}", options.table, keys[i].value))
              : fail(context, record.status());
      continue;
    }
    std::vector<Value> row = {Value::uint64(keys[i].value)};
    if (options.version) row.push_back(Value::uint64(record->version().value));
    for (size_t field = 0; field < table->schema().size(); ++field) row.push_back(record->view().value(field));
    printer->row(row);
  }
  printer->finish();
  return exit_code;
}

}  // namespace

void add_get(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("get", "Show records by their keys");
  command->add_option("table", options->table, "Name of the table")->required()->type_name("TABLE");
  command->add_option("keys", options->keys, "Keys of the records")->required()->type_name("KEY");
  command->add_option("--fields", options->fields, "Show these fields only, in this order; the others do not travel")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FIELD,…");
  command->add_flag("--with-version", options->version, "Show the version too");
  command->add_flag("--csv", context.csv, "Print CSV");
  add_connection(*command, context);
  set_body(*command, context, [&context, options] { return run(context, *options); });
}

}  // namespace loam::cli
