// Fills the structs of the Arrow C data interface with pointers into a chunk.
#include "common/schema/arrow.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace loam {
namespace {

/// The format string of a type in the Arrow C data interface.
std::string format_of(FieldType type) {
  switch (type) {
    case FieldType::kInt16:
      return "s";
    case FieldType::kInt32:
      return "i";
    case FieldType::kInt64:
      return "l";
    case FieldType::kUint64:
      return "L";
    case FieldType::kFloat32:
      return "f";
    case FieldType::kFloat64:
      return "g";
    case FieldType::kText:
      return "u";
    case FieldType::kBlob:
      return "z";
    case FieldType::kBoolean:
      return "b";
    case FieldType::kDate:
      return "tdD";  // date32, in days
    case FieldType::kTimestamp:
      return "tsu:UTC";  // in microseconds
    case FieldType::kDecimal: {
      const std::string decimal = "d:" + std::to_string(type.digits()) + "," + std::to_string(type.scale());
      return is_long(type) ? decimal : decimal + ",64";
    }
    default:
      return "n";
  }
}

/// Owns the memory to which an exported ArrowSchema points. Each child has a holder of its own, because a consumer may
/// move a child into another struct and release it later than its parent. The move sets `release` of the child in the
/// parent to null.
struct SchemaHolder {
  std::string name;
  std::string format;
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> child_pointers;
};

/// Owns the memory to which an exported ArrowArray points, and keeps the chunk alive. Each child has a holder
/// of its own, for the reason given at SchemaHolder.
struct ArrayHolder {
  std::shared_ptr<const Chunk> chunk;
  std::array<const void*, 3> buffers{};
  std::vector<ArrowArray> children;
  std::vector<ArrowArray*> child_pointers;
};

template <class Struct, class Holder>
void release(Struct* self) {
  auto* holder = static_cast<Holder*>(self->private_data);
  // A child that was moved out has a null `release` here; its new owner releases it.
  for (Struct& child : holder->children) {
    if (child.release != nullptr) child.release(&child);
  }
  delete holder;
  self->release = nullptr;
}

void fill(ArrowSchema* out, SchemaHolder* holder, int64_t flags) {
  *out = {};
  out->format = holder->format.c_str();
  out->name = holder->name.c_str();
  out->flags = flags;
  out->n_children = static_cast<int64_t>(holder->child_pointers.size());
  out->children = holder->child_pointers.empty() ? nullptr : holder->child_pointers.data();
  out->release = release<ArrowSchema, SchemaHolder>;
  out->private_data = holder;
}

void fill(ArrowArray* out, ArrayHolder* holder, size_t rows, int64_t nulls, int64_t buffers) {
  *out = {};
  out->length = static_cast<int64_t>(rows);
  out->null_count = nulls;
  out->n_buffers = buffers;
  out->buffers = holder->buffers.data();
  out->n_children = static_cast<int64_t>(holder->child_pointers.size());
  out->children = holder->child_pointers.empty() ? nullptr : holder->child_pointers.data();
  out->release = release<ArrowArray, ArrayHolder>;
  out->private_data = holder;
}

template <class Holder>
void point_at_children(Holder& holder) {
  for (auto& child : holder.children) holder.child_pointers.push_back(&child);
}

}  // namespace

void export_schema(const ResultSchema& schema, ArrowSchema* out) {
  auto holder = std::make_unique<SchemaHolder>();
  holder->children.resize(schema.size());
  for (size_t i = 0; i < schema.size(); ++i) {
    const Field& field = schema.columns[i];
    auto child = std::make_unique<SchemaHolder>();
    child->name = field.name;
    child->format = format_of(field.type);
    fill(&holder->children[i], child.release(), field.nullable ? ARROW_FLAG_NULLABLE : 0);
  }
  point_at_children(*holder);
  holder->format = "+s";
  fill(out, holder.release(), 0);
}

void export_chunk(const std::shared_ptr<const Chunk>& chunk, ArrowArray* out) {
  const ChunkView& view = chunk->view();
  auto holder = std::make_unique<ArrayHolder>();
  holder->chunk = chunk;  // each child keeps it alive too, because it may outlive the parent
  holder->children.resize(view.columns());
  for (size_t i = 0; i < view.columns(); ++i) {
    const ChunkView::Column& column = view.column(i);
    auto child = std::make_unique<ArrayHolder>();
    child->chunk = chunk;
    child->buffers[0] = column.validity;
    // Arrow expects the buffers in this order: validity, offsets of texts and blobs, values.
    const bool variable = column.offsets != nullptr;
    if (variable) child->buffers[1] = column.offsets;
    child->buffers[variable ? 2 : 1] = column.values;
    fill(&holder->children[i], child.release(), view.rows(), column.null_count, variable ? 3 : 2);
  }
  point_at_children(*holder);
  // The struct itself has one buffer, a validity bitmap. Null means that no row is NULL.
  fill(out, holder.release(), view.rows(), 0, 1);
}

}  // namespace loam
