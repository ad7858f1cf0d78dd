#include "deploy/cli/src/output/object_table.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "deploy/cli/src/output/human_readable.h"

namespace loam::cli {

using Json = nlohmann::ordered_json;

ObjectColumn text_column(std::string name, std::string field) {
  return made_column(std::move(name),
                     [field = std::move(field)](const Json& object) { return object.value(field, std::string()); });
}

ObjectColumn number_column(std::string name, std::string field) {
  return {std::move(name), FieldType::kUint64,
          [field = std::move(field)](const Json& object) { return Value::uint64(object.value(field, uint64_t{0})); }};
}

ObjectColumn duration_column(std::string name, std::string field) {
  return made_column(std::move(name), [field = std::move(field)](const Json& object) {
    return format_duration(object.value(field, uint64_t{0}));
  });
}

ObjectColumn made_column(std::string name, std::function<std::string(const Json&)> text) {
  return {std::move(name), FieldType::kText,
          [text = std::move(text)](const Json& object) { return Value::text(text(object)); }};
}

void print_objects(OutputFormat format, const std::vector<ObjectColumn>& columns, const Json& objects,
                   std::ostream& out) {
  std::vector<OutputColumn> printed;
  printed.reserve(columns.size());
  for (const ObjectColumn& column : columns) printed.push_back({column.name, column.type});
  const auto printer = make_printer(format, std::move(printed), out);
  std::vector<Value> row;
  for (const Json& object : objects) {
    row.clear();
    for (const ObjectColumn& column : columns) row.push_back(column.value(object));
    printer->row(row);
  }
  printer->finish();
}

}  // namespace loam::cli
