#include "common/wire/system_tables.h"

namespace loam::wire {

const Schema& counter_table_schema() {
  static const Schema schema =
      Schema::make({{"name", FieldType::kText, false}, {"next", FieldType::kInt64, false}}).value();
  return schema;
}

const Schema& index_node_schema() {
  static const Schema schema =
      Schema::make({{"base", FieldType::kBlob, false}, {"delta", FieldType::kBlob, false}}).value();
  return schema;
}

const std::array<TableInfo, 1>& system_tables() {
  static const std::array<TableInfo, 1> tables = {
      TableInfo{kCounterTableId, std::string(kCounterTableName), TableKind::kNonTransactional, counter_table_schema()}};
  return tables;
}

}  // namespace loam::wire
