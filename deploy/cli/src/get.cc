// `loam get`: reads records by their keys, or by equality on the first fields of an index.
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/index/handles.h"
#include "deploy/cli/src/index/index_reader.h"
#include "deploy/cli/src/index/index_text.h"
#include "deploy/cli/src/query/fields.h"

namespace loam::cli {
namespace {

struct GetCommandOptions {
  std::string table;
  std::vector<std::string> keys;  // or values of the index's first fields
  std::string index;
  std::vector<std::string> nulls;
  std::vector<std::string> fields;  // empty: all
  bool version = false;
};

// Reads all keys in one snapshot, or their newest versions in a non-transactional table.
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

/// Prints the requested columns of records. The fields are those of `shown`, a table or a projection of it.
class RecordPrinter {
 public:
  RecordPrinter(const Context& context, const GetCommandOptions& options, const client::Table& shown)
      : version_(options.version), shown_(shown) {
    const client::Table whole = shown.whole();
    std::vector<OutputColumn> columns = {{column_name_beside(kKeyColumn, whole.schema()), FieldType::kUint64}};
    if (version_) columns.push_back({column_name_beside(kVersionColumn, whole.schema()), FieldType::kUint64});
    for (const Field& field : shown.schema().fields()) columns.push_back({field.name, field.type});
    printer_ = make_printer(context.format(), std::move(columns), std::cout);
  }

  /// `record` has the fields of `shown`, or all fields of the table.
  void print(const client::Record& record) {
    std::vector<Value> row = {Value::uint64(record.key().value)};
    if (version_) row.push_back(Value::uint64(record.version().value));
    // A get by key returns the projected fields only. An index returns whole records, so the fields are selected here.
    const bool whole = !record.table().projected();
    for (size_t i = 0; i < shown_.schema().size(); ++i) {
      row.push_back(record.view().value(whole && shown_.projected() ? shown_.projection()[i] : i));
    }
    printer_->row(row);
  }
  void finish() { printer_->finish(); }

 private:
  const bool version_;
  const client::Table shown_;
  std::unique_ptr<RowPrinter> printer_;
};

int get_by_key(const Context& context, const GetCommandOptions& options, client::Client& client,
               const client::Table& table, const std::vector<Key>& keys) {
  auto records = read(client, table, keys);
  if (!records.ok()) return fail(context, records.status());
  RecordPrinter printer(context, options, table);
  int exit_code = kExitOk;
  for (size_t i = 0; i < keys.size(); ++i) {
    const Result<client::Record>& record = (*records)[i];
    // A missing record does not end the command: the others are printed, and the exit code reports the error.
    if (!record.ok()) {
      exit_code =
          record.code() == StatusCode::kNotFound
              ? fail(context, kExitFailed, fmt::format("table {} has no record {}", options.table, keys[i].value))
              : fail(context, record.status());
      continue;
    }
    printer.print(*record);
  }
  printer.finish();
  return exit_code;
}

int get_by_index(const Context& context, const GetCommandOptions& options, client::Client& client,
                 const client::Table& table) {
  const auto index = open_index(client, table.whole(), options.index);
  if (!index.ok()) return fail(context, index.status());
  if (const Status ready = check_ready(*index); !ready.ok()) return fail(context, ready);
  auto values = parse_index_values(*index, options.keys, options.nulls);
  if (!values.ok()) return fail(context, kExitBadData, values.status());
  auto transaction = client.begin({.read_only = true, .retry = {}});
  if (!transaction.ok()) return fail(context, transaction.status());
  IndexReader reader(*transaction, *index, client::IndexRange::equal(*std::move(values)));
  RecordPrinter printer(context, options, table);
  bool found = false;
  for (;;) {
    const auto records = reader.next();
    if (!records.ok()) return fail(context, records.status());
    if (records->empty()) break;
    found = true;
    for (const client::Record& record : *records) printer.print(record);
    if (!std::cout) break;  // main() reports the lost output
  }
  if (!found) {
    return fail(context, kExitFailed,
                fmt::format("table {} has no record with these values in index {}", options.table, options.index));
  }
  printer.finish();
  return kExitOk;
}

int run_get(const Context& context, const GetCommandOptions& options) {
  if (options.index.empty() && options.keys.empty()) {
    return fail(context, kExitUsage, "give the keys of the records, or --index and values of its fields");
  }
  // All keys are parsed before the connection, so a typing error costs no round trip.
  std::vector<Key> keys;
  for (size_t i = 0; i < options.keys.size() && options.index.empty(); ++i) {
    auto key = parse_key(options.keys[i]);
    if (!key.ok()) return fail(context, kExitBadData, key.status());
    keys.push_back(*key);
  }
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  auto opened = open_table(*client, options.table);
  if (!opened.ok()) return fail(context, opened.status());
  auto table = shown(*opened, options.fields);
  if (!table.ok()) return fail(context, kExitUsage, table.status());
  if (!options.index.empty()) return get_by_index(context, options, *client, *table);
  return get_by_key(context, options, *client, *table, keys);
}

}  // namespace

void add_get(CLI::App& app, Context& context) {
  auto options = std::make_shared<GetCommandOptions>();
  CLI::App* command = app.add_subcommand("get", "Show records by their keys, or by an index");
  command->add_option("table", options->table, "Name of the table")->required()->type_name("TABLE");
  command
      ->add_option("keys", options->keys,
                   "Keys of the records; with --index, values of its first fields; a blob is written x'0a0b'")
      ->type_name("KEY|VALUE");
  auto* index = command->add_option("--index", options->index, "Show the records that this index finds for the values")
                    ->type_name("INDEX");
  command
      ->add_option("--null", options->nulls, "Fields of the index that are NULL; the values belong to the other fields")
      ->needs(index)
      ->allow_extra_args(false)
      ->type_name("FIELD");
  command
      ->add_option("--fields", options->fields,
                   "Show these fields only, in this order; the storage node sends no others")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FIELD,…");
  command->add_flag("--with-version", options->version, "Show the version too");
  command->add_flag("--csv", context.csv, "Print CSV");
  add_connection(*command, context);
  set_body(*command, context, [&context, options] { return run_get(context, *options); });
}

}  // namespace loam::cli
