// The builder, the view over encoded bytes, and the chunk that owns its bytes. The header has the encoding.
#include "common/schema/chunk.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

namespace loam {
namespace {

constexpr size_t kAlignment = 8;
/// Programs that receive a chunk in the Arrow layout expect integers of 128 bits to be aligned to their size.
constexpr size_t kLongAlignment = 2 * kAlignment;
constexpr size_t kHeaderBytes = 2 * sizeof(uint32_t);
constexpr size_t kColumnHeaderBytes = 2 * sizeof(uint32_t) + sizeof(uint64_t);

Status malformed(std::string message) { return {StatusCode::kMalformed, "chunk: " + std::move(message)}; }

size_t bitmap_bytes(size_t rows) { return (rows + 7) / 8; }

/// Number of zeros among the first `rows` bits of a validity bitmap.
uint32_t count_nulls(const uint8_t* validity, size_t rows) {
  size_t present = 0;
  for (size_t i = 0; i < rows / 8; ++i) present += static_cast<size_t>(std::popcount(validity[i]));
  if (rows % 8 != 0) {
    present += static_cast<size_t>(std::popcount(static_cast<uint8_t>(validity[rows / 8] & ((1u << (rows % 8)) - 1))));
  }
  return static_cast<uint32_t>(rows - present);
}

/// Appends a bit for each byte, which is 0 or 1.
void put_bits(Bytes bytes, ByteWriter& out) {
  for (size_t at = 0; at < bytes.size(); at += 8) {
    unsigned bits = 0;
    for (size_t i = 0; i < std::min<size_t>(8, bytes.size() - at); ++i)
      bits |= static_cast<unsigned>(bytes[at + i]) << i;
    out.put(static_cast<uint8_t>(bits));
  }
}

/// Checks a text or blob column: the offsets ascend from 0 to the size of the values, and each text is UTF-8.
Status check_offsets(const ChunkView::Column& column, size_t rows, uint64_t value_bytes) {
  if (column.offsets[0] != 0) return malformed("the first offset is not zero");
  for (size_t row = 0; row < rows; ++row) {
    if (column.offsets[row + 1] < column.offsets[row]) return malformed("offsets fall");
  }
  if (static_cast<uint64_t>(column.offsets[rows]) != value_bytes) return malformed("offsets and values disagree");
  if (column.type != FieldType::kText) return ok_status();
  const auto* text = reinterpret_cast<const char*>(column.values);
  for (size_t row = 0; row < rows; ++row) {
    const auto size = static_cast<size_t>(column.offsets[row + 1] - column.offsets[row]);
    if (!is_utf8({text + column.offsets[row], size})) return malformed("text that is not UTF-8");
  }
  return ok_status();
}

/// Checks that the values of a type with a range lie in it, so that no reader has to.
Status check_ranges(const ChunkView& view, size_t column) {
  const FieldType type = view.column(column).type;
  if (type == FieldType::kBoolean) return ok_status();  // a bit
  return with_stored(type, [&]<class T>(T) {
    for (size_t row = 0; row < view.rows(); ++row) {
      if (!Value::stored(type, view.get<T>(column, row)).in_range()) {
        return malformed("a value outside of the range of its type");
      }
    }
    return ok_status();
  });
}

}  // namespace

ChunkBuilder::ChunkBuilder(ResultSchema schema) : schema_(std::move(schema)) {
  for (const Field& field : schema_.columns) {
    Column& column = columns_.emplace_back();
    column.type = field.type;
    column.width = fixed_width(field.type);
  }
  clear();
}

void ChunkBuilder::clear() {
  rows_ = 0;
  bytes_ = kHeaderBytes + columns_.size() * kColumnHeaderBytes;
  for (Column& column : columns_) {
    column.values.clear();
    column.ends.clear();
    column.valid.clear();
    column.nulls = column.count = 0;
    // The first offset, 0, is in every column of texts or blobs.
    if (column.width == 0) bytes_ += sizeof(int32_t);
  }
}

void ChunkBuilder::note_present(Column& column, size_t bytes) {
  if (!column.valid.empty()) {  // without a bitmap, all values are present
    if (column.count % 8 == 0) column.valid.push_back(0);
    column.valid[column.count / 8] |= static_cast<uint8_t>(1u << (column.count % 8));
  }
  ++column.count;
  bytes_ += bytes;
}

void ChunkBuilder::append_null(size_t index) {
  Column& column = columns_[index];
  LOAM_DCHECK(schema_.columns[index].nullable, "NULL in a column that has none");
  if (column.nulls == 0) {  // the first NULL: make the bitmap, in which all values so far are present
    column.valid.assign(column.count / 8 + 1, 0xff);
    column.valid.back() = static_cast<uint8_t>((1u << (column.count % 8)) - 1);
    bytes_ += column.valid.size();
  } else if (column.count % 8 == 0) {
    column.valid.push_back(0);
  }
  ++column.nulls;
  ++column.count;
  if (column.width == 0) {
    // A NULL text has no bytes, but an end offset, so accessors find the values of a row without reading the bitmap.
    column.ends.push_back(static_cast<int32_t>(column.values.size()));
    bytes_ += sizeof(int32_t);
  } else {
    column.values.resize(column.values.size() + column.width);
    bytes_ += column.width;
  }
}

std::byte* ChunkBuilder::extend(size_t index, size_t count) {
  Column& column = columns_[index];
  LOAM_DCHECK(column.width != 0, "not a fixed-width column");
  if (column.valid.empty()) {
    column.count += static_cast<uint32_t>(count);
  } else {
    for (size_t i = 0; i < count; ++i) note_present(column, 0);
  }
  const size_t at = column.values.size();
  column.values.resize(at + count * column.width);
  bytes_ += count * column.width;
  return column.values.data() + at;
}

void ChunkBuilder::append_text(size_t index, std::string_view value) {
  Column& column = columns_[index];
  LOAM_DCHECK(column.width == 0, "not a text or blob column");
  const Bytes bytes = as_bytes(value);
  column.values.insert(column.values.end(), bytes.begin(), bytes.end());
  column.ends.push_back(static_cast<int32_t>(column.values.size()));
  note_present(column, bytes.size() + sizeof(int32_t));
}

void ChunkBuilder::append_value(size_t column, const Value& value) {
  LOAM_DCHECK(value.is_null() || value.type() == columns_[column].type, "the value's type is not the column's");
  const FieldType type = value.type();
  if (type == FieldType::kNull) return append_null(column);
  if (is_variable(type)) return append_text(column, value.as_text());
  with_stored(type, [&]<class T>(T) { append(column, value.as_stored<T>()); });
}

void ChunkBuilder::append_field(size_t column, const RowView& row, size_t field) {
  LOAM_DCHECK(row.schema().field(field).type == columns_[column].type, "the field's type is not the column's");
  if (row.is_null(field)) return append_null(column);
  const FieldType type = columns_[column].type;
  if (is_variable(type)) return append_text(column, row.text(field));
  with_stored(type, [&]<class T>(T) { append(column, row.get<T>(field)); });
}

void ChunkBuilder::append_row(std::span<const Value> values) {
  LOAM_DCHECK(values.size() == columns_.size(), "one value for each column");
  for (size_t i = 0; i < values.size(); ++i) append_value(i, values[i]);
  end_row();
}

Status ChunkBuilder::finish(Buffer& out) {
  // Each column has at most three buffers, and before or after each of these less than kAlignment bytes of padding. The
  // values of a long column have kAlignment more.
  if (bytes_ + columns_.size() * 4 * kAlignment > kMaxChunkBytes) {
    const size_t bytes = bytes_;
    clear();
    return {StatusCode::kInvalidArgument, "query: a row of the result has " + std::to_string(bytes) +
                                              " bytes, which is over the limit of a message; select fewer fields"};
  }
  ByteWriter writer(out);
  writer.put(static_cast<uint32_t>(rows_));
  writer.put(static_cast<uint32_t>(columns_.size()));
  // All headers come before the buffers, so that a reader knows all sizes before it reads values.
  for (const Column& column : columns_) {
    LOAM_DCHECK(column.count == rows_, "every column has one value for each row");
    writer.put(static_cast<uint32_t>(column.type));
    writer.put(column.nulls);
    writer.put(static_cast<uint64_t>(column.type == FieldType::kBoolean ? bitmap_bytes(rows_) : column.values.size()));
  }
  for (const Column& column : columns_) {
    if (column.nulls != 0) {
      writer.put_raw(std::as_bytes(std::span(column.valid)));
      writer.align(kAlignment);
    }
    if (column.width == 0) {
      writer.put(int32_t{0});
      writer.put_raw(std::as_bytes(std::span(column.ends)));
      writer.align(kAlignment);
    }
    if (column.type == FieldType::kBoolean) {
      put_bits(column.values, writer);
    } else {
      if (is_long(column.type)) writer.align(kLongAlignment);
      writer.put_raw(column.values);
    }
    writer.align(kAlignment);
  }
  clear();
  return ok_status();
}

Result<ChunkView> ChunkView::decode(Bytes bytes, const ResultSchema& schema) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment != 0) {
    return Status(StatusCode::kInvalidArgument, "chunk: the bytes do not begin on a multiple of 8");
  }
  if (bytes.size() > kMaxChunkBytes) return malformed(std::to_string(bytes.size()) + " bytes are over the limit");
  ByteReader in(bytes);
  ChunkView view;
  view.rows_ = in.get<uint32_t>();
  const auto columns = in.get<uint32_t>();
  LOAM_RETURN_IF_ERROR(in.status("chunk"));
  if (view.rows_ > kMaxChunkRows) return malformed(std::to_string(view.rows_) + " rows are over the limit");
  if (columns != schema.size()) return malformed("the number of columns is not the query's");
  // Two cursors: `headers` walks over the headers of the columns, `in` over their buffers.
  ByteReader headers(in.get_raw(columns * kColumnHeaderBytes));
  view.columns_.resize(columns);  // bounded, because it equals the number of columns of the schema
  for (size_t i = 0; i < columns && !in.failed(); ++i) {
    Column& column = view.columns_[i];
    const auto type = headers.get<uint32_t>();
    column.type = schema.columns[i].type;
    column.null_count = headers.get<uint32_t>();
    const auto value_bytes = headers.get<uint64_t>();
    // The type comes from the schema, never from the bytes, so the accessors can trust it.
    if (type != static_cast<uint32_t>(column.type)) return malformed("a column's type is not the query's");
    if (column.null_count > (schema.columns[i].nullable ? view.rows_ : 0)) return malformed("too many NULLs");
    if (value_bytes > in.remaining()) return malformed("values end outside of the bytes");
    if (column.null_count != 0) {
      column.validity = reinterpret_cast<const uint8_t*>(in.get_raw(bitmap_bytes(view.rows_)).data());
      in.align(kAlignment);
      if (in.failed()) break;
      if (count_nulls(column.validity, view.rows_) != column.null_count) return malformed("NULLs are miscounted");
    }
    const size_t width = fixed_width(column.type);
    if (width == 0) {
      column.offsets = reinterpret_cast<const int32_t*>(in.get_raw((view.rows_ + 1) * sizeof(int32_t)).data());
      in.align(kAlignment);
    } else if (value_bytes != (column.type == FieldType::kBoolean ? bitmap_bytes(view.rows_) : view.rows_ * width)) {
      return malformed("the number of values is not the number of rows");
    }
    if (is_long(column.type)) in.align(kLongAlignment);
    column.values = in.get_raw(value_bytes).data();
    in.align(kAlignment);
    if (in.failed()) break;
    if (width == 0) LOAM_RETURN_IF_ERROR(check_offsets(column, view.rows_, value_bytes));
    if (has_range(column.type)) LOAM_RETURN_IF_ERROR(check_ranges(view, i));
  }
  // Failed reads are reported here. After one, the reader gives zeros and empty views, and the loop above skips the
  // checks that need bytes.
  LOAM_RETURN_IF_ERROR(in.finish("chunk"));
  return view;
}

Value ChunkView::value(size_t column, size_t row) const {
  if (is_null(column, row)) return Value::null();
  const FieldType type = columns_[column].type;
  if (type == FieldType::kText) return Value::text(text(column, row));
  if (type == FieldType::kBlob) return Value::blob(as_bytes(text(column, row)));
  return with_stored(type, [&]<class T>(T) { return Value::stored(type, get<T>(column, row)); });
}

Result<std::shared_ptr<const Chunk>> Chunk::decode(Bytes bytes, std::shared_ptr<const ResultSchema> schema) {
  if (bytes.size() > kMaxChunkBytes) return malformed(std::to_string(bytes.size()) + " bytes are over the limit");
  return adopt(Buffer(bytes.begin(), bytes.end()), std::move(schema));
}

Result<std::shared_ptr<const Chunk>> Chunk::adopt(Buffer bytes, std::shared_ptr<const ResultSchema> schema) {
  auto chunk = std::shared_ptr<Chunk>(new Chunk(std::move(bytes), std::move(schema)));
  LOAM_ASSIGN_OR_RETURN(chunk->view_, ChunkView::decode(chunk->bytes_, *chunk->schema_));
  return std::shared_ptr<const Chunk>(std::move(chunk));
}

}  // namespace loam
