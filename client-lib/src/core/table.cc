#include <utility>

#include <loam/client/table.h>

namespace loam::client {

Result<Table> Table::project(std::span<const std::string_view> fields) const {
  std::vector<uint16_t> numbers;
  numbers.reserve(fields.size());
  for (const std::string_view field : fields) {
    const auto number = schema().require(field);
    if (!number.ok()) {
      return Status(StatusCode::kInvalidArgument, "table " + name() + ": " + std::string(number.status().message()));
    }
    numbers.push_back(*number);
  }
  return project(numbers);
}

Result<Table> Table::project(std::span<const uint16_t> fields) const {
  const auto projection = Projection::make(schema(), FieldNumbers(fields));
  if (!projection.ok()) {
    return Status(StatusCode::kInvalidArgument, "table " + name() + ", " + std::string(projection.status().message()));
  }
  Description made{id(), name(), kind(), {}, {}, whole().description_};
  std::vector<Field> named;
  named.reserve(fields.size());
  for (const uint16_t field : fields) {
    named.push_back(schema().field(field));
    named.back().added = false;  // the projection is a schema of its own
    made.numbers.push_back(projected() ? description_->numbers[field] : field);
  }
  LOAM_ASSIGN_OR_RETURN(made.schema, Schema::make(std::move(named)));
  return Table(std::make_shared<const Description>(std::move(made)));
}

}  // namespace loam::client
