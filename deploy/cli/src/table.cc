// `loam table`: create, list, describe, rename, add-field and drop.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/index/handles.h"
#include "deploy/cli/src/index/index_text.h"
#include "deploy/cli/src/query/fields.h"
#include "deploy/cli/src/shell/hint.h"

namespace loam::cli {
namespace {

struct TableCommandOptions {
  std::string name;
  std::string new_name;
  std::vector<std::string> fields;
  std::string kind = "transactional";
  bool yes = false;
};

// One table as a row of `loam table list`.
std::vector<Value> describe(const client::Table& table) {
  return {Value::text(table.name()), Value::uint64(table.id().value), Value::text(to_string(table.kind())),
          Value::text(format_fields(table.schema()))};
}

const std::vector<OutputColumn> kTableColumns = {
    {"name", FieldType::kText}, {"id", FieldType::kUint64}, {"kind", FieldType::kText}, {"fields", FieldType::kText}};

int create(const Context& context, const TableCommandOptions& options) {
  auto schema = parse_fields(options.fields);
  if (!schema.ok()) return fail(context, kExitUsage, "--field: " + std::string(schema.status().message()));
  const TableKind kind = options.kind == "transactional" ? TableKind::kTransactional : TableKind::kNonTransactional;
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  auto table = client->create_table(options.name, kind, *schema);
  // The name may belong to an index; then the message of open_table() says how to read by it.
  if (table.code() == StatusCode::kAlreadyExists) {
    const auto there = open_table(*client, options.name);
    return fail(context, there.code() == StatusCode::kWrongTableKind ? there.status() : table.status());
  }
  if (!table.ok()) return fail(context, table.status());
  if (context.json) {
    auto printer = make_printer(OutputFormat::kJson, kTableColumns, std::cout);
    printer->row(describe(*table));
    printer->finish();
  } else {
    std::cout << fmt::format("table {} is there: {} with {} fields\n", table->name(), to_string(table->kind()),
                             table->schema().size());
  }
  return kExitOk;
}

int print_tables(const Context& context) {
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  auto tables = client->list_tables();
  if (!tables.ok()) return fail(context, tables.status());
  if (tables->empty() && !context.json) {
    std::cout << fmt::format("no tables yet; `{}` and `{}` say how to create one\n", hint(Hint::kTableCreateHelp),
                             hint(Hint::kImportHelp));
    return kExitOk;
  }
  auto printer = make_printer(context.format(), kTableColumns, std::cout);
  for (const client::Table& table : *tables) printer->row(describe(table));
  printer->finish();
  return kExitOk;
}

int describe_one(const Context& context, const TableCommandOptions& options) {
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  auto table = open_table(*client, options.name);
  if (!table.ok()) return fail(context, table.status());
  if (!context.json) {
    std::cout << fmt::format("table {}, id {}, {}\n\n", table->name(), table->id().value, to_string(table->kind()));
  }
  auto printer = make_printer(context.format(),
                              {{"field", FieldType::kText}, {"type", FieldType::kText}, {"nullable", FieldType::kText}},
                              std::cout);
  for (const Field& field : table->schema().fields()) {
    printer->row(std::vector{Value::text(field.name), Value::text(to_string(field.type)),
                             Value::text(field.nullable ? "yes" : "no")});
  }
  printer->finish();
  if (context.json) return kExitOk;
  auto indexes = client->list_indexes();
  if (!indexes.ok()) return fail(context, indexes.status());
  std::erase_if(*indexes, [&](const client::Index& index) { return index.table().id() != table->id(); });
  if (!indexes->empty()) std::cout << "\n";
  for (const client::Index& index : *indexes) {
    std::cout << fmt::format("{}index {}: {}{}\n", index.unique() ? "unique " : "", index.name(),
                             format_index_fields(index),
                             index.ready() ? "" : fmt::format(" ({})", format_index_state(index)));
  }
  return kExitOk;
}

int rename(const Context& context, const TableCommandOptions& options) {
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  const auto open = open_table(*client, options.name);
  // The name of an index gets another message than that of open_table(), which says how to read by it.
  if (open.code() == StatusCode::kWrongTableKind) {
    return fail(context, kExitFailed,
                fmt::format("{} is an index, and an index keeps its name: create another index with the new name, then "
                            "drop this one",
                            options.name));
  }
  if (!open.ok()) return fail(context, open.status());
  const auto renamed = client->rename_table(options.name, options.new_name);
  if (!renamed.ok()) return fail(context, renamed.status());
  if (context.json) {
    auto printer = make_printer(OutputFormat::kJson, kTableColumns, std::cout);
    printer->row(describe(*renamed));
    printer->finish();
  } else {
    std::cout << fmt::format("table {} is named {} now\n", options.name, renamed->name());
  }
  return kExitOk;
}

int add_field(const Context& context, const TableCommandOptions& options) {
  const auto schema = parse_fields(options.fields);
  if (!schema.ok()) return fail(context, kExitUsage, std::string(schema.status().message()));
  const Field& field = schema->field(0);
  if (!field.nullable) {
    return fail(
        context, kExitUsage,
        fmt::format("the records that exist have no value of {0}, so it must be nullable: write {1}?. For another "
                    "field create another table, and copy the records by `loam scan --csv` and `loam import`",
                    field.name, options.fields[0]));
  }
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  auto table = open_table(*client, options.name);
  if (!table.ok()) return fail(context, table.status());
  table = client->add_field(*table, field);
  if (!table.ok()) return fail(context, table.status());
  if (context.json) {
    auto printer = make_printer(OutputFormat::kJson, kTableColumns, std::cout);
    printer->row(describe(*table));
    printer->finish();
  } else {
    std::cout << fmt::format("table {} has the field {} now; it is NULL in the records that exist\n", options.name,
                             field.name);
  }
  return kExitOk;
}

int drop(const Context& context, const TableCommandOptions& options) {
  if (!options.yes) {
    if (isatty(STDIN_FILENO) != 1) {
      return fail(context, kExitUsage,
                  fmt::format("dropping {} removes its records and indexes for all clients; use --yes to confirm",
                              options.name));
    }
    std::cerr << fmt::format("Drop the table {} with all its records and indexes? Type its name to confirm: ",
                             options.name);
    std::string answer;
    std::getline(std::cin, answer);
    if (answer != options.name) return fail(context, kExitFailed, "nothing was dropped");
  }
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  // Checks the kind first, because the commit manager would also drop an index of this name.
  if (const auto table = open_table(*client, options.name); !table.ok()) return fail(context, table.status());
  if (Status status = client->drop_table(options.name); !status.ok()) return fail(context, status);
  if (context.json) {
    auto printer = make_printer(OutputFormat::kJson, {{"dropped", FieldType::kText}}, std::cout);
    printer->row(std::vector{Value::text(options.name)});
  } else {
    std::cout << fmt::format("table {} is dropped\n", options.name);
  }
  return kExitOk;
}

}  // namespace

void add_table(CLI::App& app, Context& context) {
  auto options = std::make_shared<TableCommandOptions>();
  CLI::App* command = app.add_subcommand("table", "Create, list, describe, rename, extend and drop tables");
  command->require_subcommand(1);

  CLI::App* creation = command->add_subcommand("create", "Create a table; no error if the same table exists");
  creation->add_option("name", options->name, "Name of the table")->required()->type_name("TABLE");
  creation
      ->add_option("--field", options->fields,
                   "A field: name:type, or name:type? if it may be NULL. Types: int16, int32, int64, float32, float64, "
                   "text, blob, boolean, date, timestamp, decimal(digits,scale). Repeat it for every field")
      ->required()
      ->type_name("NAME:TYPE[?]");
  creation
      ->add_option("--kind", options->kind,
                   "Kind of the table: with transactions, or only the newest version of each record")
      ->check(CLI::IsMember({"transactional", "non-transactional"}))
      ->capture_default_str();
  add_connection(*creation, context);
  set_body(*creation, context, [&context, options] { return create(context, *options); });

  CLI::App* listing = command->add_subcommand("list", "List the tables");
  add_connection(*listing, context);
  set_body(*listing, context, [&context] { return print_tables(context); });

  CLI::App* description = command->add_subcommand("describe", "Show the fields and indexes of a table");
  description->add_option("name", options->name, "Name of the table")->required()->type_name("TABLE");
  add_connection(*description, context);
  set_body(*description, context, [&context, options] { return describe_one(context, *options); });

  CLI::App* renaming = command->add_subcommand("rename", "Give a table another name; records and indexes stay");
  renaming->add_option("name", options->name, "Name of the table")->required()->type_name("TABLE");
  renaming->add_option("new_name", options->new_name, "The new name")->required()->type_name("NEW_NAME");
  add_connection(*renaming, context);
  set_body(*renaming, context, [&context, options] { return rename(context, *options); });

  CLI::App* addition = command->add_subcommand("add-field", "Add a nullable field; it is NULL in records that exist");
  addition->add_option("name", options->name, "Name of the table")->required()->type_name("TABLE");
  addition->add_option("field", options->fields, "The field, with a type as for `loam table create`")
      ->required()
      ->expected(1)
      ->type_name("NAME:TYPE?");
  add_connection(*addition, context);
  set_body(*addition, context, [&context, options] { return add_field(context, *options); });

  CLI::App* dropping = command->add_subcommand("drop", "Drop a table with all its records and indexes");
  dropping->add_option("name", options->name, "Name of the table")->required()->type_name("TABLE");
  dropping->add_flag("--yes", options->yes, "Do not ask");
  add_connection(*dropping, context);
  set_body(*dropping, context, [&context, options] { return drop(context, *options); });
}

}  // namespace loam::cli
