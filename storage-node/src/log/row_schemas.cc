#include "storage-node/src/log/row_schemas.h"

namespace loam::storage {

Bytes copy_of_row(const Entry& entry, ThreadContext& thread, const RowSchemas* schemas, const Schema* to) {
  const Bytes row = row_of(entry, thread);
  if (to == nullptr || added_fields(entry) == to->added()) return row;
  Env::probe("node.row.converted");
  const Schema& from = schema_of(entry, *schemas);
  const size_t bytes = converted_size(from, *to, row);
  std::byte* const out = thread.row_memory(bytes);
  convert_row(from, *to, row, out);
  return {out, bytes};
}

}  // namespace loam::storage
