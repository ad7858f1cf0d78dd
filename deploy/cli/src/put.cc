// `loam put`: inserts a record or changes some fields of an existing one.
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/index/handles.h"

namespace loam::cli {
namespace {

struct PutCommandOptions {
  std::string table;
  std::string key;
  std::vector<std::string> assignments;
  std::vector<std::string> nulls;
  bool only_new = false;
  bool only_existing = false;
};

struct Change {
  uint16_t field;
  Value value;
};

// Error messages about bad values begin with the name of the field, as in an import.
Result<std::vector<Change>> parse_changes(const PutCommandOptions& options, const Schema& schema) {
  std::vector<Change> changes;
  std::vector<bool> assigned(schema.size(), false);
  const auto add = [&](const std::string& name, Value value) -> Status {
    LOAM_ASSIGN_OR_RETURN(const uint16_t field, schema.require(name));
    if (assigned[field]) return Status(StatusCode::kInvalidArgument, fmt::format("field {} is assigned twice", name));
    assigned[field] = true;
    if (value.is_null() && !schema.field(field).nullable) {
      return Status(StatusCode::kInvalidArgument, fmt::format("field {} cannot be NULL", name));
    }
    changes.push_back({field, std::move(value)});
    return ok_status();
  };
  for (const std::string& assignment : options.assignments) {
    LOAM_ASSIGN_OR_RETURN(const auto pair, split_assignment(assignment));
    LOAM_ASSIGN_OR_RETURN(const uint16_t field, schema.require(pair.first));
    auto value = Value::parse(pair.second, schema.field(field).type);
    if (!value.ok()) {
      return Status(StatusCode::kInvalidArgument, fmt::format("field {}: {}", pair.first, value.status().message()));
    }
    LOAM_RETURN_IF_ERROR(add(pair.first, *std::move(value)));
  }
  for (const std::string& name : options.nulls) LOAM_RETURN_IF_ERROR(add(name, Value::null()));
  return changes;
}

// Builds a new record; fields without a value are NULL.
Result<client::Record> make_record(const client::Table& table, const std::vector<Change>& changes) {
  std::vector<Value> values(table.schema().size());
  std::vector<bool> assigned(values.size(), false);
  for (const Change& change : changes) {
    values[change.field] = change.value;
    assigned[change.field] = true;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const Field& field = table.schema().field(i);
    if (!assigned[i] && !field.nullable) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("field {} cannot be NULL and is not given: {}=…", field.name, field.name));
    }
  }
  return client::Record::make(table, values);
}

// The changed fields, in the order of the changes; only these are sent. Without changes the whole record is read and
// written back unchanged.
Result<client::Table> changed_part(const client::Table& table, const std::vector<Change>& changes) {
  if (changes.empty()) return table;
  std::vector<uint16_t> fields;
  fields.reserve(changes.size());
  for (const Change& change : changes) fields.push_back(change.field);
  return table.project(fields);
}

Status apply(client::Record& part, const std::vector<Change>& changes) {
  for (size_t i = 0; i < changes.size(); ++i) LOAM_RETURN_IF_ERROR(part.set(i, changes[i].value));
  return ok_status();
}

Status refuse_existing(const client::Table& table, Key key) {
  return Status(StatusCode::kAlreadyExists,
                fmt::format("table {} has a record with key {} already", table.name(), key.value));
}

// Writes the record in one transaction; sets `existed` to whether there was a record.
Status put_transactional(client::Client& client, const client::Table& table, Key key, const PutCommandOptions& options,
                         const std::vector<Change>& changes, bool& existed) {
  LOAM_ASSIGN_OR_RETURN(const client::Table part, changed_part(table, changes));
  return client.run_transaction([&](client::Transaction& transaction) -> Status {
    auto old = transaction.get(part, key);
    existed = old.ok();
    if (old.ok()) {
      if (options.only_new) return refuse_existing(table, key);
      LOAM_RETURN_IF_ERROR(apply(*old, changes));
      return transaction.update(table, key, *old);
    }
    if (old.code() != StatusCode::kNotFound || options.only_existing) return old.status();
    LOAM_ASSIGN_OR_RETURN(const client::Record record, make_record(table, changes));
    return transaction.insert(table, key, record);
  });
}

// Writes the record of a non-transactional table. The update names the version that was read, so it fails with
// kConflict if another client has written in between (R21, exact-version writes). The command does not repeat it.
Status put_plain(client::Client& client, const client::Table& table, Key key, const PutCommandOptions& options,
                 const std::vector<Change>& changes, bool& existed) {
  LOAM_ASSIGN_OR_RETURN(const client::Table part, changed_part(table, changes));
  LOAM_ASSIGN_OR_RETURN(client::PlainTable plain, client.plain(table));
  LOAM_ASSIGN_OR_RETURN(client::PlainTable changing, client.plain(part));
  auto old = changing.get(key);
  existed = old.ok();
  if (old.ok()) {
    if (options.only_new) return refuse_existing(table, key);
    LOAM_RETURN_IF_ERROR(apply(*old, changes));
    return plain.update(key, old->version(), *old).status();
  }
  if (old.code() != StatusCode::kNotFound || options.only_existing) return old.status();
  LOAM_ASSIGN_OR_RETURN(const client::Record record, make_record(table, changes));
  return plain.insert(key, record).status();
}

int run_put(const Context& context, const PutCommandOptions& options) {
  auto key = parse_key(options.key);
  if (!key.ok()) return fail(context, kExitBadData, key.status());
  // The form of the assignments is checked before the connection; their types need the schema.
  for (const std::string& assignment : options.assignments) {
    auto pair = split_assignment(assignment);
    if (!pair.ok()) return fail(context, kExitUsage, pair.status());
  }
  int exit_code = 0;
  auto client = connect(context, exit_code);
  if (!client) return exit_code;
  auto table = open_table(*client, options.table);
  if (!table.ok()) return fail(context, table.status());
  auto changes = parse_changes(options, table->schema());
  if (!changes.ok()) return fail(context, kExitBadData, changes.status());
  bool existed = false;
  const Status status = table->kind() == TableKind::kTransactional
                            ? put_transactional(*client, *table, *key, options, *changes, existed)
                            : put_plain(*client, *table, *key, options, *changes, existed);
  if (status == StatusCode::kInvalidArgument) return fail(context, kExitBadData, status);
  if (!status.ok()) return fail(context, status);
  if (context.json) {
    auto printer = make_printer(
        OutputFormat::kJson, {{"table", FieldType::kText}, {"key", FieldType::kUint64}, {"written", FieldType::kText}},
        std::cout);
    printer->row(
        std::vector{Value::text(options.table), Value::uint64(key->value), Value::text(existed ? "changed" : "new")});
  } else {
    std::cout << fmt::format("record {} of {} is {}\n", key->value, options.table, existed ? "changed" : "written");
  }
  return kExitOk;
}

}  // namespace

void add_put(CLI::App& app, Context& context) {
  auto options = std::make_shared<PutCommandOptions>();
  CLI::App* command = app.add_subcommand("put", "Write one record: a new one, or some fields of an existing one");
  command->add_option("table", options->table, "Name of the table")->required()->type_name("TABLE");
  command->add_option("key", options->key, "Key of the record")->required()->type_name("KEY");
  command->add_option("values", options->assignments, "Values; a blob is written x'0a0b'")->type_name("FIELD=VALUE");
  command->add_option("--null", options->nulls, "Fields that become NULL")->type_name("FIELD");
  auto* only_new = command->add_flag("--new", options->only_new, "Refuse a key that has a record");
  command->add_flag("--existing", options->only_existing, "Refuse a key that has no record")->excludes(only_new);
  add_connection(*command, context);
  set_body(*command, context, [&context, options] { return run_put(context, *options); });
}

}  // namespace loam::cli
