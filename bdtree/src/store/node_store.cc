// The row of a tree node's record: base and delta as two blobs, so that a small change sends the delta alone.
#include <array>

#include <loam/bdtree/node_store.h>

#include "common/schema/row.h"
#include "common/wire/system_tables.h"

namespace loam::bdtree {
namespace {

using Fields = wire::IndexNodeFields;

Buffer copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

Result<Buffer> row_of(const Schema& schema, std::span<const Bytes> blobs) {
  RowBuilder builder(schema);
  for (size_t i = 0; i < blobs.size(); ++i) LOAM_RETURN_IF_ERROR(builder.set_blob(i, blobs[i]));
  LOAM_ASSIGN_OR_RETURN(const Bytes row, builder.finish());
  return copy(row);
}

}  // namespace

Result<StoredNode> NodeStore::decode(Version version, Bytes row) {
  LOAM_RETURN_IF_ERROR(validate_row(wire::index_node_schema(), row));
  const RowView view(wire::index_node_schema(), row);
  return StoredNode{version, copy(view.blob(Fields::kBase)), copy(view.blob(Fields::kDelta))};
}

std::vector<Result<StoredNode>> NodeStore::get(std::span<const TreeNodeId> ids) {
  std::vector<Key> keys;
  keys.reserve(ids.size());
  for (const TreeNodeId id : ids) keys.emplace_back(id.value);
  return read(keys);
}

Result<Version> NodeStore::insert(TreeNodeId id, Bytes base, Bytes delta, Reserve reserve) {
  LOAM_ASSIGN_OR_RETURN(const Buffer row, row_of(wire::index_node_schema(), std::array{base, delta}));
  return write({wire::WriteKind::kInsert, reserve, {table_, Key(id.value)}, Version(), row}, {});
}

Result<Version> NodeStore::replace(TreeNodeId id, Version expected, Bytes base, Bytes delta, Reserve reserve,
                                   std::span<const wire::IndexIntent> intents) {
  LOAM_ASSIGN_OR_RETURN(const Buffer row, row_of(wire::index_node_schema(), std::array{base, delta}));
  return write({wire::WriteKind::kUpdate, reserve, {table_, Key(id.value)}, expected, row}, intents);
}

Result<Version> NodeStore::replace_delta(TreeNodeId id, Version expected, Bytes delta, Reserve reserve,
                                         std::span<const wire::IndexIntent> intents) {
  static const Schema schema = Schema::make({wire::index_node_schema().field(Fields::kDelta)}).value();
  static constexpr std::array<uint16_t, 1> kNumbers = {Fields::kDelta};
  LOAM_ASSIGN_OR_RETURN(const Buffer row, row_of(schema, std::array{delta}));
  return write(
      {wire::WriteKind::kUpdateFields, reserve, {table_, Key(id.value)}, expected, row, FieldNumbers(kNumbers)},
      intents);
}

Status NodeStore::remove(TreeNodeId id, Version expected) {
  return write({wire::WriteKind::kRemove, Reserve::kRemove, {table_, Key(id.value)}, expected, {}}, {}).status();
}

}  // namespace loam::bdtree
