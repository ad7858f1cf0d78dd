// `loam delete`: removes one record. The removal names the version that it removes if the table is non-transactional
// (R21, exact-version writes).
#include <iostream>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/index/handles.h"

namespace loam::cli {
namespace {

struct DeleteCommandOptions {
  std::string table;
  std::string key;
};

Status remove(client::Client& client, const client::Table& table, Key key) {
  if (table.kind() == TableKind::kTransactional) {
    return client.run_transaction([&](client::Transaction& transaction) { return transaction.remove(table, key); });
  }
  LOAM_ASSIGN_OR_RETURN(client::PlainTable plain, client.plain(table));
  LOAM_ASSIGN_OR_RETURN(const client::Record old, plain.get(key));
  return plain.remove(key, old.version());
}

int run_delete(const Context& context, const DeleteCommandOptions& options) {
  auto key = parse_key(options.key);
  if (!key.ok()) return fail(context, kExitBadData, key.status());
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  auto table = open_table(*client, options.table);
  if (!table.ok()) return fail(context, table.status());
  const Status status = remove(*client, *table, *key);
  if (status == StatusCode::kNotFound) {
    return fail(context, kExitFailed, fmt::format("table {} has no record {}", options.table, key->value));
  }
  if (!status.ok()) return fail(context, status);
  if (context.json) {
    auto printer =
        make_printer(OutputFormat::kJson, {{"table", FieldType::kText}, {"deleted", FieldType::kUint64}}, std::cout);
    printer->row(std::vector{Value::text(options.table), Value::uint64(key->value)});
  } else {
    std::cout << fmt::format("record {} of {} is deleted\n", key->value, options.table);
  }
  return kExitOk;
}

}  // namespace

void add_delete(CLI::App& app, Context& context) {
  auto options = std::make_shared<DeleteCommandOptions>();
  CLI::App* command = app.add_subcommand("delete", "Delete one record");
  command->add_option("table", options->table, "Name of the table")->required()->type_name("TABLE");
  command->add_option("key", options->key, "Key of the record")->required()->type_name("KEY");
  add_connection(*command, context);
  set_body(*command, context, [&context, options] { return run_delete(context, *options); });
}

}  // namespace loam::cli
