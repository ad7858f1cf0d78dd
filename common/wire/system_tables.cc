#include "common/wire/system_tables.h"

#include <utility>

namespace loam::wire {

const Schema& transaction_table_schema() {
  static const Schema schema = Schema::make({{"session", FieldType::kInt64, false},
                                             {"state", FieldType::kInt16, false},
                                             {"body", FieldType::kBlob, false}})
                                   .value();
  return schema;
}

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

std::optional<uint16_t> mark_field(const TableInfo& table) {
  if (table.name != kTransactionTableName || table.kind != TableKind::kNonTransactional) return std::nullopt;
  if (table.schema != transaction_table_schema()) return std::nullopt;
  return TransactionTableFields::kState;
}

const std::array<TableInfo, 2>& system_tables() {
  static const std::array<TableInfo, 2> tables = {
      TableInfo{kTransactionTableId, std::string(kTransactionTableName), TableKind::kNonTransactional,
                transaction_table_schema()},
      TableInfo{kCounterTableId, std::string(kCounterTableName), TableKind::kNonTransactional, counter_table_schema()}};
  return tables;
}

}  // namespace loam::wire
