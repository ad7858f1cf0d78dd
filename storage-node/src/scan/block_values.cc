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
    : schema_(std::move(schema)), columns_(schema_->size()), fields_(*this), evaluator_(fields_) {}

void BlockValues::reset(const Block& block) {
  block_ = &block;
  ++number_;
  evaluator_.begin_batch();
  all_ = RowMask::first(block.size());
}

FieldType BlockValues::type(uint16_t column) const {
  return column < kFirstComputed ? schema_->field(column).type : evaluator_.type(column);
}

Result<BlockValues::BoundQuery> BlockValues::bind(const Query& query) {
  BoundQuery bound{query, {}};
  const auto renumber = [&](uint16_t& column) {
    if (column >= kFirstComputed) column = bound.columns[column - kFirstComputed];
  };
  for (Computed& column : bound.query.computed) {
    std::ranges::for_each(column.arguments, renumber);
    const Result<uint16_t> number = evaluator_.add(column);
    if (!number.ok()) {
      release(bound);
      return number.status();
    }
    bound.columns.push_back(*number);
  }
  bound.query.for_each_use(renumber);
  bound.query.computed.clear();
  if (bound.query.group_by.empty()) return bound;
  const auto same = [&](const SharedGroups& shared) { return shared.groups->columns() == bound.query.group_by; };
  auto found = std::ranges::find_if(groups_, same);
  if (found == groups_.end()) {
    found = groups_.insert(found, {std::make_unique<BlockGroups>(bound.query.group_by), 0});
  }
  ++found->uses;
  bound.groups = found->groups.get();
  return bound;
}

void BlockValues::release(const BoundQuery& bound) {
  for (const uint16_t number : bound.columns) evaluator_.release(number);
  if (bound.groups == nullptr) return;
  const auto same = [&](const SharedGroups& shared) { return shared.groups.get() == bound.groups; };
  const auto found = std::ranges::find_if(groups_, same);
  if (--found->uses == 0) groups_.erase(found);
}

BlockValues::Column& BlockValues::column_of(uint16_t field) {
  if (field < kFirstComputed) return columns_[field];
  const size_t at = field - size_t{kFirstComputed};
  if (at >= computed_.size()) computed_.resize(at + 1);
  return computed_[at];
}

BlockValues::Lanes& BlockValues::lanes(Column& column) {
  if (column.lanes == nullptr) column.lanes = std::make_unique<Lanes>();  // the first time that the field is read
  return *column.lanes;
}

// Rows without a value have the key 0, as NULLs of fields do.
const int64_t* BlockValues::load_computed_keys(uint16_t field, Column& column) {
  const ColumnLanes& from = evaluator_.computed(field);
  if (from.keys != nullptr && from.present == RowMask::first(kBlockRows)) return from.keys;
  int64_t* const out = lanes(column).keys;
  std::fill_n(out, kBlockRows, 0);
  const FieldType type = evaluator_.type(field);
  from.present.for_each([&](size_t row) {
    out[row] = type == FieldType::kBoolean ? int64_t{from.truths.test(row)}
               : is_float(type)            ? order_key(from.reals[row])
                                           : order_key(from.whole(row));
  });
  return out;
}

const ColumnLanes& BlockValues::field_lanes(uint16_t field) {
  Column& column = columns_[field];
  if (std::exchange(column.argument_of, number_) != number_) load_field_lanes(field, column.argument);
  return column.argument;
}

void BlockValues::load_field_lanes(uint16_t field, ColumnLanes& out) {
  const FieldType type = schema_->field(field).type;
  out.longs = nullptr;
  out.present = present(field);
  Column& column = columns_[field];
  if (is_variable(type)) {
    if (column.texts == nullptr) column.texts = std::make_unique<std::array<std::string_view, kBlockRows>>();
    out.present.for_each([&](size_t row) { (*column.texts)[row] = text(field, row); });
    out.texts = column.texts->data();
  } else if (is_float(type)) {
    out.reals = reals(field);
  } else if (type == FieldType::kBoolean) {
    const int64_t* const bits = keys(field);
    out.truths = out.present.filter([&](size_t row) { return bits[row] != 0; });
  } else {
    out.keys = keys(field);
    out.magnitude = known_magnitude(field);
    const auto shared = [&](size_t row) {
      return out.keys[row] == std::numeric_limits<int64_t>::min() ||
             out.keys[row] == std::numeric_limits<int64_t>::max();
    };
    // Keys beyond 64 bits are not the values.
    if (is_long(type) && out.magnitude == ColumnLanes::kAnyMagnitude && out.present.filter(shared).any()) {
      if (column.longs == nullptr) column.longs = std::make_unique<std::array<Int128, kBlockRows>>();
      out.present.for_each([&](size_t row) { (*column.longs)[row] = value<Int128>(field, row); });
      out.longs = column.longs->data();
      out.keys = nullptr;
    }
  }
}

const int64_t* BlockValues::load_keys(uint16_t field, Column& column) {
  if (field >= kFirstComputed) return load_computed_keys(field, column);
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
  Column& column = column_of(field);
  if (column.keys_of != number_) {
    column.keys_of = number_;
    column.keys = load_keys(field, column);
  }
  return column.keys;
}

const double* BlockValues::load_reals(uint16_t field, Column& column) {
  if (field >= kFirstComputed) {
    const ColumnLanes& from = evaluator_.computed(field);
    if (from.present == RowMask::first(kBlockRows)) return from.reals;
    double* const out = lanes(column).reals;
    std::fill_n(out, kBlockRows, 0.0);
    from.present.for_each([&](size_t row) { out[row] = from.reals[row]; });
    return out;
  }
  double* const out = lanes(column).reals;
  const bool narrow = schema_->field(field).type == FieldType::kFloat32;
  if (const Columns* const columns = block_->columns()) {
    if (!columns->has(field)) {
      std::fill_n(out, kBlockRows, 0.0);
      return out;
    }
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
  Column& column = column_of(field);
  if (column.reals_of != number_) {
    column.reals_of = number_;
    column.reals = load_reals(field, column);
  }
  return column.reals;
}

uint64_t BlockValues::known_magnitude(uint16_t column) {
  if (column >= kFirstComputed) return evaluator_.computed(column).magnitude;
  const Columns* const columns = block_->columns();
  if (columns == nullptr) return ColumnLanes::kAnyMagnitude;
  const storage::Column& header = columns->column(column);
  return header.least > header.greatest ? 0 : ColumnLanes::magnitude_of(header.least, header.greatest);
}

uint64_t BlockValues::magnitude(uint16_t field) {
  if (const uint64_t known = known_magnitude(field); known < kSmallMagnitude) return known;
  const int64_t* const values = keys(field);
  Column& column = column_of(field);
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

const int64_t* BlockValues::exact_keys(uint16_t column) {
  const FieldType of = type(column);
  if (is_variable(of)) {
    const int64_t* const of_texts = heads(column);
    return column_of(column).short_texts ? of_texts : nullptr;
  }
  // The lowest and the highest key stand for several values. With one of them the magnitude has all its bits.
  const bool shared = is_long(of) && magnitude(column) == std::numeric_limits<int64_t>::max();
  return shared ? nullptr : keys(column);
}

const RowMask& BlockValues::present(uint16_t field) {
  if (field >= kFirstComputed) {
    Column& column = column_of(field);
    if (std::exchange(column.present_of, number_) != number_) column.present = evaluator_.computed(field).present;
    return column.present;
  }
  const uint16_t bit = schema_->layout(field).null_bit;
  if (bit == FieldLayout::kNone) return all_;
  Column& column = columns_[field];
  if (column.present_of != number_) {
    column.present_of = number_;
    if (const Columns* const columns = block_->columns()) {
      if (!columns->has(field)) return column.present = RowMask();
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
  if (field >= kFirstComputed) return !evaluator_.computed(field).present.test(row);
  if (const Columns* const columns = block_->columns()) return columns->is_null(field, block_->first_row() + row);
  return RowView(*schema_, {block_->row(row), schema_->fixed_size()}).is_null(field);  // reads the bitmap alone
}

std::string_view BlockValues::text(uint16_t field, size_t row) const {
  if (field >= kFirstComputed) {
    const ColumnLanes& lanes = evaluator_.computed(field);
    return lanes.present.test(row) ? lanes.texts[row] : std::string_view("");  // has an address, as fields have
  }
  if (const Columns* const columns = block_->columns()) return columns->text(field, block_->first_row() + row);
  // The end offsets lead to the text, so the view needs no more than the fixed part.
  return RowView(*schema_, {block_->row(row), schema_->fixed_size()}).text(field);
}

Value BlockValues::any_value(uint16_t column, size_t row) const {
  if (is_null(column, row)) return Value::null();
  const FieldType of = type(column);
  if (of == FieldType::kText) return Value::text(text(column, row));
  if (of == FieldType::kBlob) return Value::blob(as_bytes(text(column, row)));
  return with_stored(of, [&]<class T>(T) { return Value::stored(of, value<T>(column, row)); });
}

const int64_t* BlockValues::heads(uint16_t field) {
  // A field is either a number or a text. So heads use the array of keys, and tails use the array of reals.
  Column& column = column_of(field);
  if (column.keys_of != number_) {
    column.keys_of = number_;
    int64_t* const out = lanes(column).keys;
    if (const Columns* const columns = field < kFirstComputed ? block_->columns() : nullptr) {
      column.short_texts = columns->heads(field, block_->first_row(), size(), out);
    } else {
      column.short_texts = true;
      for (size_t i = 0; i < size(); ++i) {
        const std::string_view value = text(field, i);
        out[i] = head_key(value);
        if (value.size() > sizeof out[i] || value.ends_with('\0')) column.short_texts = false;
      }
    }
    column.keys = out;
  }
  return column.keys;
}

const int64_t* BlockValues::tails(uint16_t field) {
  Column& column = column_of(field);
  if (column.reals_of != number_) {
    column.reals_of = number_;
    int64_t* const out = lanes(column).tails;
    for (size_t i = 0; i < size(); ++i) out[i] = tail_key(text(field, i));
  }
  return column.lanes->tails;
}

}  // namespace loam::storage
