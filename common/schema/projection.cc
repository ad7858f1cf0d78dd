// Layout of a projection, and the copies between rows and parts. A part has the layout of schema.h for its own fields.
#include "common/schema/projection.h"

#include <array>
#include <bitset>
#include <string>

#include "common/schema/row.h"

namespace loam {
namespace {

Status invalid_projection(const std::string& message) { return {StatusCode::kInvalidArgument, "fields: " + message}; }

uint32_t load_end(Bytes row, uint32_t offset) {
  uint32_t end;
  std::memcpy(&end, row.data() + offset, sizeof end);
  return end;
}

void put_null_bit(std::byte* bitmap, uint16_t bit, bool null) {
  const auto mask = static_cast<std::byte>(1u << (bit % 8));
  std::byte& byte = bitmap[bit / 8];
  byte = null ? byte | mask : byte & ~mask;
}

bool null_bit(Bytes row, uint32_t null_offset, uint16_t bit) {
  return ((static_cast<uint8_t>(row[null_offset + bit / 8]) >> (bit % 8)) & 1) != 0;
}

}  // namespace

void FieldNumbers::encode(ByteWriter& out) const {
  out.put_varint(size());
  out.put_raw(bytes_);
}

Result<FieldNumbers> FieldNumbers::decode(ByteReader& in) {
  FieldNumbers numbers;
  numbers.bytes_ = in.get_raw(in.get_count(sizeof(uint16_t)) * sizeof(uint16_t));
  LOAM_RETURN_IF_ERROR(in.status("field numbers"));
  return numbers;
}

Result<Projection> Projection::make(const Schema& schema, FieldNumbers numbers) {
  if (numbers.empty()) return invalid_projection("none is named");
  if (numbers.size() > schema.size()) {
    return invalid_projection(std::to_string(numbers.size()) + " are named, and there are " +
                              std::to_string(schema.size()));
  }
  std::bitset<kMaxFields> named;
  std::array<uint32_t, kRowParts.size()> fields{};  // number of fields in each part
  Projection projection;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const uint16_t number = numbers[i];
    if (number >= schema.size()) {
      return invalid_projection("none has number " + std::to_string(number) + ", they count from 0 to " +
                                std::to_string(schema.size() - 1));
    }
    const Field& field = schema.field(number);
    if (named[number]) return invalid_projection("'" + field.name + "' is named twice");
    named[number] = true;
    ++fields[row_part(field.type)];
    projection.nullable_count_ = static_cast<uint16_t>(projection.nullable_count_ + (field.nullable ? 1 : 0));
  }
  projection.schema_ = &schema;
  projection.numbers_ = numbers;
  projection.has_variable_ = fields[kEndOffsets] != 0;
  for (size_t part = 0; part < kRowParts.size(); ++part) {
    projection.offsets_[part] = projection.null_offset_;
    projection.null_offset_ += fields[part] * kRowParts[part];
  }
  projection.fixed_size_ = projection.null_offset_ + (projection.nullable_count_ + 7u) / 8u;
  return projection;
}

size_t Projection::projected_size(Bytes row) const {
  size_t size = fixed_size_;
  if (!has_variable_) return size;
  const RowView view(*schema_, row);
  for (size_t i = 0; i < numbers_.size(); ++i) {
    if (is_variable(schema_->field(numbers_[i]).type)) size += view.text(numbers_[i]).size();
  }
  return size;
}

void Projection::project(Bytes row, std::byte* out) const {
  const RowView view(*schema_, row);
  // put_null_bit() changes single bits, so the unused bits need a defined value: validate_row() demands 0.
  std::memset(out + null_offset_, 0, fixed_size_ - null_offset_);
  uint32_t end = fixed_size_;
  for_each([&](uint16_t number, const FieldLayout& to) {
    if (to.null_bit != FieldLayout::kNone) put_null_bit(out + null_offset_, to.null_bit, view.is_null(number));
    if (to.variable_index == FieldLayout::kNone) {
      const size_t width = fixed_width(schema_->field(number).type);
      std::memcpy(out + to.offset, row.data() + schema_->layout(number).offset, width);
      return;
    }
    const std::string_view text = view.text(number);
    if (!text.empty()) std::memcpy(out + end, text.data(), text.size());
    end += static_cast<uint32_t>(text.size());
    std::memcpy(out + to.offset, &end, sizeof end);
  });
}

void Projection::compose(Bytes row, Bytes part, std::byte* out) const {
  // Copies the fixed part of the row, and then replaces the named fixed-width fields and NULL bits in it.
  std::memcpy(out, row.data(), schema_->fixed_size());
  for_each([&](uint16_t number, const FieldLayout& from) {
    const FieldLayout& to = schema_->layout(number);
    if (from.null_bit != FieldLayout::kNone) {
      put_null_bit(out + schema_->null_offset(), to.null_bit, null_bit(part, null_offset_, from.null_bit));
    }
    if (from.variable_index != FieldLayout::kNone) return;
    std::memcpy(out + to.offset, part.data() + from.offset, fixed_width(schema_->field(number).type));
  });
  if (has_variable_) return compose_variable(row, part, out);
  // The part has no text or blob, so the texts and blobs of the row stay where they are.
  const Bytes tail = row.subspan(schema_->fixed_size());
  if (!tail.empty()) std::memcpy(out + schema_->fixed_size(), tail.data(), tail.size());
}

void Projection::compose_variable(Bytes row, Bytes part, std::byte* out) const {
  // The values that the part replaces may change size, which moves all values after them. The slots of the end offsets
  // in `out` serve as scratch memory, so that the function allocates nothing.
  const auto slot = [&](size_t variable) { return out + schema_->end_offsets() + variable * sizeof(uint32_t); };
  // Pass 1: store the sizes of the new values in the slots of their ends.
  std::bitset<kMaxFields> named;
  uint32_t begin = fixed_size_;
  for_each([&](uint16_t number, const FieldLayout& from) {
    if (from.variable_index == FieldLayout::kNone) return;
    const uint32_t end = load_end(part, from.offset);
    const uint32_t size = end - std::exchange(begin, end);
    const uint16_t variable = schema_->layout(number).variable_index;
    std::memcpy(slot(variable), &size, sizeof size);
    named[variable] = true;
  });
  // Pass 2: compute all ends, and copy the values of the row that the part does not replace.
  const RowView view(*schema_, row);
  uint32_t at = schema_->fixed_size();
  for (size_t variable = 0; variable < schema_->variable_fields().size(); ++variable) {
    uint32_t size;
    if (named[variable]) {
      std::memcpy(&size, slot(variable), sizeof size);
    } else {
      const std::string_view stays = view.text(schema_->variable_fields()[variable]);
      size = static_cast<uint32_t>(stays.size());
      if (size != 0) std::memcpy(out + at, stays.data(), size);
    }
    at += size;
    std::memcpy(slot(variable), &at, sizeof at);
  }
  // Pass 3: copy the new values. They may lie in another order in the part than in the row.
  begin = fixed_size_;
  for_each([&](uint16_t number, const FieldLayout& from) {
    if (from.variable_index == FieldLayout::kNone) return;
    const uint32_t end = load_end(part, from.offset);
    const uint32_t size = end - std::exchange(begin, end);
    uint32_t to;
    std::memcpy(&to, slot(schema_->layout(number).variable_index), sizeof to);
    if (size != 0) std::memcpy(out + to - size, part.data() + end - size, size);
  });
}

}  // namespace loam
