// Tables about JSON objects, such as the replies of the administration.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/schema/value.h"
#include "deploy/cli/src/output/printer.h"

namespace loam::cli {

/// One column of a table whose rows are JSON objects.
struct ObjectColumn {
  std::string name;
  FieldType type = FieldType::kText;
  std::function<Value(const nlohmann::ordered_json& object)> value;
};

/// A column with the text of a field; empty if the object lacks the field.
ObjectColumn text_column(std::string name, std::string field);
/// A column with the number of a field; 0 if the object lacks the field.
ObjectColumn number_column(std::string name, std::string field);
/// A column with the duration of a field in nanoseconds, for people.
ObjectColumn duration_column(std::string name, std::string field);
/// A column with a text that is made from the object.
ObjectColumn made_column(std::string name, std::function<std::string(const nlohmann::ordered_json& object)> text);

/// Prints a row for each object of a list.
void print_objects(OutputFormat format, const std::vector<ObjectColumn>& columns, const nlohmann::ordered_json& objects,
                   std::ostream& out);

}  // namespace loam::cli
