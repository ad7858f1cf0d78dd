// Loads the fields of a block from a row page or a column page into arrays, each array at most once for a block.
#include "storage-node/src/scan/block_values.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace loam::storage {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Sets out[i] to convert(field of row i) for the rows of a row page.
template <class T, class To, class Convert>
void load_column(const Block& block, uint32_t offset, To* out, Convert convert) {
  for (size_t i = 0; i < block.size(); ++i) out[i] = convert(load<T>(block.row(i) + offset));
}

}  // namespace

BlockValues::BlockValues(std::shared_ptr<const Schema> schema)
    : schema_(std::move(schema)), columns_(schema_->size()) {}

void BlockValues::reset(const Block& block) {
  block_ = &block;
  ++number_;
  all_ = RowMask::first(block.size());
}

BlockValues::Lanes& BlockValues::lanes(Column& column) {
  if (column.lanes == nullptr) column.lanes = std::make_unique<Lanes>();  // the first time that the field is read
  return *column.lanes;
}

const int64_t* BlockValues::load_keys(uint16_t field, Column& column) {
  int64_t* const out = lanes(column).keys;
  const FieldType type = schema_->field(field).type;
  if (is_float(type)) {
    const double* const values = reals(field);
    for (size_t i = 0; i < size(); ++i) out[i] = order_key(values[i]);
    return out;
  }
  if (is_long(type)) {
    for (size_t i = 0; i < size(); ++i) out[i] = order_key(value<Int128>(field, i));
    return out;
  }
  if (const Columns* const columns = block_->columns()) {
    const int64_t* const read = columns->integers(field, block_->first_row(), size(), out);
    // A full block of 8-byte values is read where it lies in the page (Columns::integers()).
    if (size() == kBlockRows || read == out) return read;
    // Copy a partial block: kernels read kBlockRows elements, and the page may end before that.
    std::copy_n(read, size(), out);
    return out;
  }
  const uint32_t offset = schema_->layout(field).offset;
  with_stored(type, [&]<class T>(T) {
    load_column<T>(*block_, offset, out, [](T value) { return static_cast<int64_t>(value); });
  });
  return out;
}

const int64_t* BlockValues::keys(uint16_t field) {
  Column& column = columns_[field];
  if (column.keys_of != number_) {
    column.keys_of = number_;
    column.keys = load_keys(field, column);
  }
  return column.keys;
}

const double* BlockValues::load_reals(uint16_t field, Column& column) {
  double* const out = lanes(column).reals;
  const bool narrow = schema_->field(field).type == FieldType::kFloat32;
  if (const Columns* const columns = block_->columns()) {
    const std::byte* const from =
        columns->values(field) + block_->first_row() * (narrow ? sizeof(float) : sizeof(double));
    if (!narrow && size() == kBlockRows) return reinterpret_cast<const double*>(from);
    for (size_t i = 0; i < size(); ++i) {
      out[i] = narrow ? load<float>(from + i * sizeof(float)) : load<double>(from + i * sizeof(double));
    }
    return out;
  }
  const uint32_t offset = schema_->layout(field).offset;
  const auto as_is = [](auto value) { return static_cast<double>(value); };
  if (narrow) {
    load_column<float>(*block_, offset, out, as_is);
  } else {
    load_column<double>(*block_, offset, out, as_is);
  }
  return out;
}

const double* BlockValues::reals(uint16_t field) {
  Column& column = columns_[field];
  if (column.reals_of != number_) {
    column.reals_of = number_;
    column.reals = load_reals(field, column);
  }
  return column.reals;
}

uint64_t BlockValues::magnitude(uint16_t field) {
  const int64_t* const values = keys(field);
  Column& column = columns_[field];
  if (column.magnitude_of != number_) {
    column.magnitude_of = number_;
    // v ^ (v >> 63) is v for v ≥ 0 and -v - 1 for v < 0. The OR of these is at least each of them, and cheaper than a
    // maximum.
    int64_t bits = 0;
    for (size_t i = 0; i < size(); ++i) bits |= values[i] ^ (values[i] >> 63);
    column.magnitude = static_cast<uint64_t>(bits);
  }
  return column.magnitude;
}

const RowMask& BlockValues::present(uint16_t field) {
  const uint16_t bit = schema_->layout(field).null_bit;
  if (bit == FieldLayout::kNone) return all_;
  Column& column = columns_[field];
  if (column.present_of != number_) {
    column.present_of = number_;
    if (const Columns* const columns = block_->columns()) {
      if (!columns->column(field).has_null) return column.present = all_;
      const std::byte* const bytes = columns->null_bytes(bit / 8) + block_->first_row();
      column.present =
          all_.filter([&](size_t row) { return ((static_cast<unsigned>(bytes[row]) >> (bit % 8)) & 1) == 0; });
    } else {
      const uint32_t at = schema_->null_offset() + bit / 8;
      column.present = all_.filter(
          [&](size_t row) { return ((static_cast<unsigned>(block_->row(row)[at]) >> (bit % 8)) & 1) == 0; });
    }
  }
  return column.present;
}

bool BlockValues::is_null(uint16_t field, size_t row) const {
  if (const Columns* const columns = block_->columns()) return columns->is_null(field, block_->first_row() + row);
  return RowView(*schema_, block_->entry(row).row()).is_null(field);
}

std::string_view BlockValues::text(uint16_t field, size_t row) const {
  if (const Columns* const columns = block_->columns()) return columns->text(field, block_->first_row() + row);
  return RowView(*schema_, block_->entry(row).row()).text(field);
}

RowView BlockValues::view(size_t row, std::span<const uint16_t> fields) {
  const Columns* const columns = block_->columns();
  if (columns == nullptr) return {*schema_, block_->entry(row).row()};
  const size_t number = block_->first_row() + row;
  row_.resize(columns->row_bytes(number));
  // A row stores a text behind the end of the text before it. So a row view with one text needs all texts.
  if (std::ranges::any_of(fields, [&](uint16_t field) { return is_variable(schema_->field(field).type); })) {
    columns->gather(number, row_.data());
  } else {
    columns->gather(number, fields, row_.data());
  }
  return {*schema_, row_};
}

const int64_t* BlockValues::heads(uint16_t field) {
  // A field is either a number or a text. So heads use the array of keys, and tails use the array of reals.
  Column& column = columns_[field];
  if (column.keys_of != number_) {
    column.keys_of = number_;
    int64_t* const out = lanes(column).keys;
    for (size_t i = 0; i < size(); ++i) out[i] = head_key(text(field, i));
    column.keys = out;
  }
  return column.keys;
}

const int64_t* BlockValues::tails(uint16_t field) {
  Column& column = columns_[field];
  if (column.reals_of != number_) {
    column.reals_of = number_;
    int64_t* const out = lanes(column).tails;
    for (size_t i = 0; i < size(); ++i) out[i] = tail_key(text(field, i));
  }
  return column.lanes->tails;
}

}  // namespace loam::storage
