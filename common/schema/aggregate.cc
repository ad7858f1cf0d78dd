// GroupTable: an open-addressing hash table from the encoded key of a group to its number. Keys and accumulators lie
// in arrays by group number, so the table itself holds numbers only.
#include "common/schema/aggregate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/schema/decimal.h"

namespace loam {
namespace {

/// Slots of the hash table of an empty GroupTable. The number of slots is always a power of two.
constexpr size_t kFirstSlots = 64;

/// Hashes the key of a group eight bytes at a time, by a multiplication to 128 bits whose halves are combined, as in
/// wyhash.
uint64_t hash_bytes(Bytes bytes) {
  uint64_t h = 0x9e3779b97f4a7c15u ^ bytes.size();
  const auto mix = [&h](uint64_t word) {
    const auto product = static_cast<unsigned __int128>(h ^ word) * 0xa0761d6478bd642fu;
    h = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    mix(word);
  }
  uint64_t tail = 0;
  if (at != bytes.size()) std::memcpy(&tail, bytes.data() + at, bytes.size() - at);
  mix(tail);
  return h;
}

/// Appends a value to the key of a group: a byte that says that it is present, and then the value in a form in which
/// equal values have equal bytes.
template <class T>
void put_number(ByteWriter& out, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (value == 0) value = 0;  // -0 becomes +0
    if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
  }
  out.put<uint8_t>(1);
  out.put(value);
}

void put_text(ByteWriter& out, std::string_view text) {
  out.put<uint8_t>(1);
  out.put(static_cast<uint32_t>(text.size()));
  out.put_raw(as_bytes(text));
}

/// Appends a value that is not NULL to the key of a group. It is a field of a row, or a column and a row of a chunk.
template <class Source, class... At>
void put_key(ByteWriter& out, FieldType type, const Source& source, At... at) {
  if (is_variable(type)) return put_text(out, source.text(at...));
  with_stored(type, [&]<class T>(T) { put_number(out, source.template get<T>(at...)); });
}

bool is_sum(AggregateOp op) { return op == AggregateOp::kSum || op == AggregateOp::kAvg; }
bool is_extreme(AggregateOp op) { return op == AggregateOp::kMin || op == AggregateOp::kMax; }

/// Whether a new value replaces the present extreme. `order` is the order of the new value and the present one.
bool better(AggregateOp op, std::weak_ordering order) { return op == AggregateOp::kMin ? order < 0 : order > 0; }

/// A value that is stored as an integer of any width. `at` as for put_key().
template <class Source, class... At>
Int128 get_integer(FieldType type, const Source& source, At... at) {
  return with_stored(type, [&]<class T>(T) { return static_cast<Int128>(source.template get<T>(at...)); });
}

/// A float of any width, as double. `at` as for put_key().
template <class Source, class... At>
double get_real(FieldType type, const Source& source, At... at) {
  if (type == FieldType::kFloat32) return static_cast<double>(source.template get<float>(at...));
  return source.template get<double>(at...);
}

void update_integer_extreme(AggregateOp op, Int128 value, Accumulator& into) {
  if (into.count == 0 || better(op, value <=> into.whole)) into.whole = value;
}

void update_real_extreme(AggregateOp op, double value, Accumulator& into) {
  if (into.count == 0 || better(op, compare_floats(value, into.real))) into.real = value;
}

}  // namespace

GroupTable::GroupTable(const Schema& schema, const Query& query, size_t max_groups, size_t max_bytes,
                       MemoryAccount* account)
    : group_by_(query.group_by), max_groups_(max_groups), max_bytes_(max_bytes), account_(account) {
  const QueryColumns columns(schema, query.computed);
  for (const uint16_t column : group_by_) group_types_.push_back(columns.type(column));
  for (const Aggregate& aggregate : query.aggregates) {
    const bool all = aggregate.op == AggregateOp::kCountAll;
    aggregates_.push_back({aggregate.op, aggregate.field, all ? FieldType() : columns.type(aggregate.field)});
  }
  for (const Field& column : query.result_schema(schema).columns) names_.push_back(column.name);
  clear();
}

void GroupTable::clear() {
  groups_ = 0;
  text_bytes_ = text_capacity_ = 0;
  keys_.clear();
  key_ends_.clear();
  accumulators_.clear();
  slots_.assign(kFirstSlots, 0);
  // Without group-by there is one group, even if the query selects no row.
  if (group_by_.empty()) {
    groups_ = 1;
    key_ends_.push_back(0);
    accumulators_.resize(aggregates_.size());
    for (size_t i = 0; i < aggregates_.size(); ++i) {
      if (is_float(aggregates_[i].type)) accumulators_[i].real = 0;
    }
  }
}

Status GroupTable::over_limit() const {
  return {StatusCode::kInvalidArgument, "query: the groups are over a limit (" + std::to_string(max_groups_) +
                                            " groups, " + std::to_string(max_bytes_) +
                                            " bytes); group by fewer values or select fewer rows"};
}

template <class T>
Status GroupTable::reserve(std::vector<T>& items, size_t more) {
  if (items.size() + more <= items.capacity()) return ok_status();
  const size_t before = items.capacity() * sizeof(T);
  const size_t capacity = std::max(items.size() + more, items.capacity() * 2);
  // The old and the new memory are both held until the items have moved.
  if (account_ != nullptr) LOAM_RETURN_IF_ERROR(account_->acquire(capacity * sizeof(T)));
  items.reserve(capacity);
  if (account_ != nullptr) account_->release(before);
  return ok_status();
}

Status GroupTable::make_room(size_t key_bytes) {
  LOAM_RETURN_IF_ERROR(reserve(keys_, key_bytes));
  LOAM_RETURN_IF_ERROR(reserve(key_ends_, 1));
  return reserve(accumulators_, aggregates_.size());
}

// The texts of min and max grow with the values, so their memory is checked after the row that changed them. Until
// then it exceeds the limit by at most the texts of one row.
Status GroupTable::check_texts() {
  if (text_bytes_ > max_bytes_) return over_limit();
  if (account_ == nullptr || text_capacity_ <= text_reserved_) return ok_status();
  const size_t more = text_capacity_ - std::exchange(text_reserved_, text_capacity_);
  return account_->acquire(more);
}

Status GroupTable::grow() {
  // The new hash table has twice the size. Both tables are held until all groups are in the new one.
  const size_t before = slots_.size() * sizeof(uint32_t);
  if (account_ != nullptr) LOAM_RETURN_IF_ERROR(account_->acquire(2 * before));
  std::vector<uint32_t> slots(slots_.size() * 2, 0);
  const size_t mask = slots.size() - 1;
  for (size_t group = 0; group < groups_; ++group) {
    const size_t begin = group == 0 ? 0 : key_ends_[group - 1];
    size_t slot = hash_bytes(Bytes(keys_).subspan(begin, key_ends_[group] - begin)) & mask;
    // Linear probing. All keys differ, so the first empty slot is the right one.
    while (slots[slot] != 0) slot = (slot + 1) & mask;
    slots[slot] = static_cast<uint32_t>(group + 1);
  }
  slots_ = std::move(slots);
  if (account_ != nullptr) account_->release(before);
  return ok_status();
}

/// Returns the group with this key, and adds it if there is none.
Result<size_t> GroupTable::group_of(Bytes key) {
  // Step 1: look the key up. The search ends at an empty slot, which exists because at most half of the slots are
  // used.
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_bytes(key) & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const size_t group = slots_[slot] - 1;
    const size_t begin = group == 0 ? 0 : key_ends_[group - 1];
    if (equal(key, Bytes(keys_).subspan(begin, key_ends_[group] - begin))) return group;
  }
  // Step 2: add the group, after its memory was checked. Once the hash table has grown, it has at most four slots for
  // each group, because grow() doubles it when half of them are used.
  const size_t group_bytes = aggregates_.size() * sizeof(Accumulator) + sizeof(size_t) + 4 * sizeof(uint32_t);
  const size_t bytes = keys_.size() + key.size() + text_bytes_ + (groups_ + 1) * group_bytes;
  if (groups_ >= max_groups_ || bytes > max_bytes_) return over_limit();
  LOAM_RETURN_IF_ERROR(make_room(key.size()));
  keys_.insert(keys_.end(), key.begin(), key.end());
  key_ends_.push_back(keys_.size());
  for (const Column& column : aggregates_) {
    Accumulator& accumulator = accumulators_.emplace_back();
    if (is_float(column.type)) accumulator.real = 0;
  }
  slots_[slot] = static_cast<uint32_t>(++groups_);
  if (groups_ * 2 > slots_.size()) LOAM_RETURN_IF_ERROR(grow());
  return groups_ - 1;
}

void GroupTable::update_text(size_t group, size_t aggregate, std::string_view value, bool first) {
  update_text_extreme(aggregates_[aggregate], value, first, accumulators(group)[aggregate]);
}

void GroupTable::update_text_extreme(const Column& column, std::string_view value, bool first, Accumulator& into) {
  // Only a new extreme is copied.
  if (!first && !better(column.op, value <=> std::string_view(into.text))) return;
  text_bytes_ = text_bytes_ - into.text.size() + value.size();
  const size_t before = into.text.capacity();
  into.text = value;
  text_capacity_ += into.text.capacity() - before;  // never negative, because an assignment keeps the capacity
}

template <class Row>
void GroupTable::accumulate(const Column& column, const Row& row, Accumulator& into) {
  if (column.op == AggregateOp::kCountAll) {
    ++into.count;
    return;
  }
  if (row.is_null(column.field)) return;
  if (is_extreme(column.op)) {
    if (is_variable(column.type)) {
      update_text_extreme(column, row.text(column.field), into.count == 0, into);
    } else if (is_float(column.type)) {
      update_real_extreme(column.op, get_real(column.type, row, column.field), into);
    } else {
      update_integer_extreme(column.op, get_integer(column.type, row, column.field), into);
    }
  } else if (column.op != AggregateOp::kCount) {
    if (is_float(column.type)) {
      into.real += get_real(column.type, row, column.field);
    } else {
      into.add(get_integer(column.type, row, column.field));
    }
  }
  ++into.count;
}

template <class Row>
Result<size_t> GroupTable::group_of_row(const Row& row) {
  if (group_by_.empty()) return 0;
  key_.clear();
  ByteWriter out(key_);
  for (size_t i = 0; i < group_by_.size(); ++i) {
    if (row.is_null(group_by_[i])) {
      out.put<uint8_t>(0);
    } else {
      put_key(out, group_types_[i], row, group_by_[i]);
    }
  }
  return group_of(key_);
}

Result<size_t> GroupTable::group_of(const GroupRow& row) { return group_of_row(row); }

template <class Row>
Status GroupTable::add_row(const Row& row) {
  LOAM_ASSIGN_OR_RETURN(const size_t group, group_of_row(row));
  Accumulator* const into = accumulators(group);
  for (size_t i = 0; i < aggregates_.size(); ++i) accumulate(aggregates_[i], row, into[i]);
  return check_texts();
}

Status GroupTable::add(const RowView& row) { return add_row(row); }
Status GroupTable::add(const GroupRow& row) { return add_row(row); }

/// Merges the partial columns of one aggregate, which begin at column `at`, and returns the column after them.
size_t GroupTable::merge_one(const Column& column, const ChunkView& partial, size_t at, size_t row, Accumulator& into) {
  if (column.op == AggregateOp::kCountAll || column.op == AggregateOp::kCount) {
    into.count =
        static_cast<int64_t>(static_cast<uint64_t>(into.count) + static_cast<uint64_t>(partial.get<int64_t>(at, row)));
    return at + 1;
  }
  if (is_extreme(column.op)) {
    if (partial.is_null(at, row)) return at + 1;
    if (is_variable(column.type)) {
      update_text_extreme(column, partial.text(at, row), into.count == 0, into);
    } else if (is_float(column.type)) {
      update_real_extreme(column.op, get_real(column.type, partial, at, row), into);
    } else {
      update_integer_extreme(column.op, get_integer(column.type, partial, at, row), into);
    }
    ++into.count;  // for an extreme, only 0 or more matters: whether there is a value
    return at + 1;
  }
  if (is_float(column.type)) {
    into.real += partial.get<double>(at++, row);
  } else {
    // Unsigned arithmetic: sums of a faulty storage node wrap around instead of causing undefined behaviour.
    using Unsigned = unsigned __int128;
    const auto high = static_cast<Unsigned>(static_cast<uint64_t>(partial.get<int64_t>(at++, row)));
    const auto low = static_cast<Unsigned>(partial.get<uint64_t>(at++, row));
    into.add(static_cast<Int128>(high << 64 | low));
    if (is_long(column.type)) {
      const auto carry = static_cast<uint64_t>(partial.get<int64_t>(at++, row));
      into.carry = static_cast<int64_t>(static_cast<uint64_t>(into.carry) + carry);
    }
  }
  into.count =
      static_cast<int64_t>(static_cast<uint64_t>(into.count) + static_cast<uint64_t>(partial.get<int64_t>(at, row)));
  return at + 1;
}

Status GroupTable::merge(const ChunkView& partial, size_t row) {
  size_t group = 0;
  if (!group_by_.empty()) {
    key_.clear();
    ByteWriter out(key_);
    for (size_t i = 0; i < group_by_.size(); ++i) {
      if (partial.is_null(i, row)) {
        out.put<uint8_t>(0);
      } else {
        put_key(out, group_types_[i], partial, i, row);
      }
    }
    LOAM_ASSIGN_OR_RETURN(group, group_of(key_));
  }
  Accumulator* const into = accumulators(group);
  size_t at = group_by_.size();
  for (size_t i = 0; i < aggregates_.size(); ++i) at = merge_one(aggregates_[i], partial, at, row, into[i]);
  return check_texts();
}

/// Appends the values of the key of a group, and returns their number.
size_t GroupTable::append_key(size_t group, ChunkBuilder& out) const {
  const size_t begin = group == 0 ? 0 : key_ends_[group - 1];
  ByteReader in(Bytes(keys_).subspan(begin, key_ends_[group] - begin));
  for (size_t i = 0; i < group_by_.size(); ++i) {
    if (in.get<uint8_t>() == 0) {
      out.append_null(i);
      continue;
    }
    const FieldType type = group_types_[i];
    if (is_variable(type)) {
      out.append_text(i, as_text(in.get_raw(in.get<uint32_t>())));
    } else {
      with_stored(type, [&]<class T>(T) { out.append(i, in.get<T>()); });
    }
  }
  return group_by_.size();
}

void GroupTable::append_extreme(const Column& column, const Accumulator& from, size_t at, ChunkBuilder& out) const {
  if (from.count == 0) return out.append_null(at);
  if (is_variable(column.type)) return out.append_text(at, from.text);
  with_stored(column.type, [&]<class T>(T) {
    if constexpr (std::is_floating_point_v<T>) {
      out.append(at, static_cast<T>(from.real));
    } else {
      out.append(at, static_cast<T>(from.whole));
    }
  });
}

void GroupTable::append_partial(size_t group, ChunkBuilder& out) {
  size_t at = append_key(group, out);
  const Accumulator* from = accumulators(group);
  for (const Column& column : aggregates_) {
    if (is_extreme(column.op)) {
      append_extreme(column, *from, at++, out);
    } else {
      if (is_sum(column.op)) {
        if (is_float(column.type)) {
          out.append(at++, from->real);
        } else {
          // The exact sum of 128 bits travels as two columns.
          out.append(at++, static_cast<int64_t>(from->whole >> 64));
          out.append(at++, static_cast<uint64_t>(from->whole));
          if (is_long(column.type)) out.append(at++, from->carry);
        }
      }
      out.append(at++, from->count);
    }
    ++from;
  }
  out.end_row();
}

Result<Value> GroupTable::result(const Column& column, const Accumulator& from) const {
  const bool average = column.op == AggregateOp::kAvg;
  if (from.count == 0) return Value::null();
  if (is_float(column.type)) {
    return Value::float64(average ? from.real / static_cast<double>(from.count) : from.real);
  }
  if (column.type == FieldType::kDecimal) {
    const FieldType type = average ? average_type(column.type) : sum_type(column.type);
    const auto more = static_cast<uint8_t>(type.scale() - column.type.scale());
    const auto number = mean_of_decimals(from.whole, from.carry, average ? from.count : 1, more);
    if (!number) return Status(StatusCode::kOverflow, "has more than " + std::to_string(type.digits()) + " digits");
    return Value::stored(type, *number);
  }
  if (average) return Value::float64(static_cast<double>(from.whole) / static_cast<double>(from.count));
  const auto sum = static_cast<int64_t>(from.whole);
  if (from.whole != sum) return Status(StatusCode::kOverflow, "is outside of the range of int64");
  return Value::int64(sum);
}

Status GroupTable::append_result(size_t group, ChunkBuilder& out) {
  const Accumulator* from = accumulators(group);
  // Compute all sums and averages before the first append, so that an error leaves no incomplete row in `out`.
  results_.clear();
  for (size_t i = 0; i < aggregates_.size(); ++i) {
    if (!is_sum(aggregates_[i].op)) continue;
    Result<Value> value = result(aggregates_[i], from[i]);
    if (!value.ok()) {
      return {value.code(), names_[group_by_.size() + i] + " " + std::string(value.status().message())};
    }
    results_.push_back(std::move(*value));
  }
  size_t at = append_key(group, out), sums = 0;
  for (const Column& column : aggregates_) {
    if (is_sum(column.op)) {
      out.append_value(at, results_[sums++]);
    } else if (is_extreme(column.op)) {
      append_extreme(column, *from, at, out);
    } else {
      out.append(at, from->count);
    }
    ++at;
    ++from;
  }
  out.end_row();
  return ok_status();
}

}  // namespace loam
