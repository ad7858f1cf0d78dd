// `loam index`: create, list and drop. The client library builds indexes; index/index_text.h parses and prints their
// fields.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "common/base/env.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/host/interrupt.h"
#include "deploy/cli/src/index/handles.h"
#include "deploy/cli/src/index/index_text.h"
#include "deploy/cli/src/output/progress.h"
#include "deploy/cli/src/shell/hint.h"

namespace loam::cli {
namespace {

struct IndexCommandOptions {
  std::string name;
  std::string table;
  std::vector<std::string> fields;
  bool unique = false;
  bool yes = false;
};

// One index as a row of `loam index list`.
std::vector<Value> describe(const client::Index& index) {
  return {Value::text(index.name()), Value::text(index.table().name()), Value::text(format_index_fields(index)),
          Value::text(index.unique() ? "yes" : "no"), Value::text(std::string(format_index_state(index)))};
}

const std::vector<OutputColumn> kIndexColumns = {{"name", FieldType::kText},
                                                 {"table", FieldType::kText},
                                                 {"fields", FieldType::kText},
                                                 {"unique", FieldType::kText},
                                                 {"state", FieldType::kText}};

// Prints why a creation failed, what remains of the index, and how to continue.
int creation_failed(const Context& context, const IndexCommandOptions& options, client::Client& client,
                    const Status& status) {
  // The status alone does not say what remains, because the client may have lost the reply of its last step. The
  // catalog does.
  const auto there = client.open_index(options.name);
  const StatusCode code = status.code();
  if (code == StatusCode::kAlreadyExists && there.ok()) {
    return fail(context, kExitFailed,
                fmt::format("there is an index {} already, created by\n  {}\n`{}` drops it", options.name,
                            create_command(*there), hint(Hint::kIndexDrop, {options.name})));
  }
  if (code == StatusCode::kAlreadyExists && client.open_table(options.name).ok()) {
    return fail(context, kExitFailed, fmt::format("there is a table {}; choose another name", options.name));
  }
  if (code == StatusCode::kAlreadyExists) {
    return fail(context, kExitFailed,
                fmt::format("{}\n  The index was removed. Change the records, or omit --unique.", status.message()));
  }
  if (there.ok() && there->damaged()) return fail(context, check_ready(*there));
  // If the catalog cannot be read, the index may be there, so the message assumes it.
  const bool stays = there.ok() ? !there->ready() : there.code() != StatusCode::kNoSuchTable;
  if (!stays) return fail(context, status);
  return fail(
      context, exit_code_of(status),
      fmt::format(
          "{}\n  The unfinished index stays, and writes maintain it: the same command continues the build, `{}` "
          "drops it.",
          status.message().empty() ? to_string(status.code()) : status.message(),
          hint(Hint::kIndexDrop, {options.name})));
}

int create(const Context& context, const IndexCommandOptions& options) {
  catch_interrupts();
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  auto table = open_table(*client, options.table);
  if (!table.ok()) return fail(context, table.status());
  auto fields = parse_index_fields(options.fields, table->schema());
  if (!fields.ok()) return fail(context, kExitUsage, "--fields: " + std::string(fields.status().message()));

  ProgressOptions look;
  look.terminal = standard_error_is_terminal();
  look.width = terminal_width();
  look.unit = "records";
  ProgressBar bar(std::cerr, look, Env::now_ns());
  client::IndexOptions creation;
  creation.unique = options.unique;
  creation.on_progress = [&](uint64_t done, uint64_t total) {
    if (interrupted()) {
      // The client cannot cancel a creation. It leaves the index unfinished, as the death of this process would; no
      // data is lost.
      bar.clear();
      fail(context, kExitInterrupted,
           fmt::format("interrupted; the unfinished index {} stays: the same command continues the build",
                       options.name));
      std::_Exit(kExitInterrupted);
    }
    const double fraction = total == 0 ? -1 : static_cast<double>(done) / static_cast<double>(total);
    if (!context.json) bar.update(fraction, done, Env::now_ns());
  };
  const auto index = client->create_index(options.name, *table, *fields, creation);
  bar.clear();
  if (!index.ok()) return creation_failed(context, options, *client, index.status());
  if (context.json) {
    auto printer = make_printer(OutputFormat::kJson, kIndexColumns, std::cout);
    printer->row(describe(*index));
    printer->finish();
  } else {
    std::cout << fmt::format("{}index {} of table {} is ready: {}\n", index->unique() ? "unique " : "", index->name(),
                             index->table().name(), format_index_fields(*index));
  }
  return kExitOk;
}

int print_indexes(const Context& context, const IndexCommandOptions& options) {
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  if (!options.table.empty()) {
    const auto table = open_table(*client, options.table);
    if (!table.ok()) return fail(context, table.status());
  }
  auto indexes = client->list_indexes();
  if (!indexes.ok()) return fail(context, indexes.status());
  std::erase_if(*indexes, [&](const client::Index& index) {
    return !options.table.empty() && index.table().name() != options.table;
  });
  if (indexes->empty() && !context.json) {
    std::cout << fmt::format("no indexes yet; `{}` says how to create one\n", hint(Hint::kIndexCreateHelp));
    return kExitOk;
  }
  auto printer = make_printer(context.format(), kIndexColumns, std::cout);
  for (const client::Index& index : *indexes) printer->row(describe(index));
  printer->finish();
  return kExitOk;
}

int drop(const Context& context, const IndexCommandOptions& options) {
  if (!options.yes) {
    if (isatty(STDIN_FILENO) != 1) {
      return fail(
          context, kExitUsage,
          fmt::format("programs that read by index {} will fail without it; use --yes to drop it", options.name));
    }
    std::cerr << fmt::format("Drop the index {}? The records stay. Type its name to confirm: ", options.name);
    std::string answer;
    std::getline(std::cin, answer);
    if (answer != options.name) return fail(context, kExitFailed, "nothing was dropped");
  }
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  if (Status status = client->drop_index(options.name); !status.ok()) return fail(context, status);
  if (context.json) {
    auto printer = make_printer(OutputFormat::kJson, {{"dropped", FieldType::kText}}, std::cout);
    printer->row(std::vector{Value::text(options.name)});
  } else {
    std::cout << fmt::format("index {} is dropped\n", options.name);
  }
  return kExitOk;
}

}  // namespace

void add_index(CLI::App& app, Context& context) {
  auto options = std::make_shared<IndexCommandOptions>();
  CLI::App* command = app.add_subcommand("index", "Create, list and drop indexes");
  command->require_subcommand(1);

  CLI::App* creation =
      command->add_subcommand("create", "Create an index and fill it; the same command continues an unfinished build");
  creation->add_option("name", options->name, "Name of the index")->required()->type_name("INDEX");
  creation->add_option("--table", options->table, "The transactional table of the index")
      ->required()
      ->type_name("TABLE");
  creation
      ->add_option("--fields", options->fields,
                   "Fields in the order of the index: \"carrier,delay:desc\"; :desc puts the greatest values first")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FIELD[:desc],…");
  creation->add_flag("--unique", options->unique, "No two records may have the same values (NULL equals nothing)");
  add_connection(*creation, context);
  set_body(*creation, context, [&context, options] { return create(context, *options); });

  CLI::App* listing = command->add_subcommand("list", "List the indexes, with those that are being built");
  listing->add_option("--table", options->table, "Only the indexes of this table")->type_name("TABLE");
  add_connection(*listing, context);
  set_body(*listing, context, [&context, options] { return print_indexes(context, *options); });

  CLI::App* dropping = command->add_subcommand("drop", "Drop an index; the records stay");
  dropping->add_option("name", options->name, "Name of the index")->required()->type_name("INDEX");
  dropping->add_flag("--yes", options->yes, "Do not ask");
  add_connection(*dropping, context);
  set_body(*dropping, context, [&context, options] { return drop(context, *options); });
}

}  // namespace loam::cli
