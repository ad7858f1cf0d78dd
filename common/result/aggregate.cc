// GroupTable: keys of groups have numbers (KeyTable), and accumulators lie in an array by these numbers.
#include "common/result/aggregate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/result/distinct_sketch.h"
#include "common/schema/decimal.h"

namespace loam {
namespace {

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

/// A number as a double. A decimal is divided by a power of ten.
double real_of(Int128 value, uint8_t scale) {
  return scale == 0 ? static_cast<double>(value)
                    : static_cast<double>(value) / static_cast<double>(power_of_ten(scale));
}

/// The spread of one value. That of an infinity or NaN is NaN, as in PostgreSQL.
Accumulator::Spread spread_of(double value) {
  return {value, std::isfinite(value) ? 0 : std::numeric_limits<double>::quiet_NaN()};
}

bool is_distinct(AggregateOp op) {
  return op == AggregateOp::kCountDistinct || op == AggregateOp::kApproxCountDistinct;
}
bool is_sum(AggregateOp op) { return op == AggregateOp::kSum || op == AggregateOp::kAvg; }
/// Whether result() computes the value of the aggregate.
bool is_computed(AggregateOp op) { return is_sum(op) || is_variance(op); }
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
    : group_by_(query.group_by), max_groups_(max_groups), max_bytes_(max_bytes), account_(account), keys_(account) {
  const QueryColumns columns(schema, query.computed);
  for (const uint16_t column : group_by_) group_types_.push_back(columns.type(column));
  for (const Aggregate& aggregate : query.aggregates) {
    const bool all = aggregate.op == AggregateOp::kCountAll;
    Column& column = aggregates_.emplace_back();
    column.op = aggregate.op;
    column.field = aggregate.field;
    column.type = all ? FieldType() : columns.type(aggregate.field);
    if (aggregate.op == AggregateOp::kCountDistinct) column.distinct = std::make_unique<KeyTable>(account);
  }
  for (const Field& column : query.result_schema(schema).columns) names_.push_back(column.name);
  clear();
}

void GroupTable::clear() {
  groups_ = 0;
  text_bytes_ = text_capacity_ = 0;
  keys_.clear();
  accumulators_.clear();
  for (Column& column : aggregates_) {
    if (column.distinct != nullptr) column.distinct->clear();
    column.by_group.clear();
  }
  // Without group-by there is one group, even if the query selects no row.
  if (group_by_.empty()) add_accumulators();
}

void GroupTable::add_accumulators() {
  for (const Column& column : aggregates_) {
    Accumulator& accumulator = accumulators_.emplace_back();
    if (is_variance(column.op)) {
      accumulator.spread = {0, 0};
    } else if (is_float(column.type) && !is_distinct(column.op)) {
      accumulator.real = 0;
    }
  }
  ++groups_;
}

Status GroupTable::over_limit() const {
  return {StatusCode::kInvalidArgument, "query: the groups are over a limit (" + std::to_string(max_groups_) +
                                            " groups, " + std::to_string(max_bytes_) +
                                            " bytes); group by fewer values or select fewer rows"};
}

size_t GroupTable::bytes() const {
  size_t bytes = keys_.bytes() + text_bytes_ + groups_ * aggregates_.size() * sizeof(Accumulator);
  for (const Column& column : aggregates_) {
    if (column.distinct != nullptr) bytes += column.distinct->bytes();
  }
  return bytes;
}

// The texts grow with the values, so their memory is checked after the row that changed them. Until then it exceeds the
// limit by at most the texts of one row.
Status GroupTable::check_texts() {
  if (text_bytes_ > max_bytes_) return over_limit();
  if (account_ == nullptr || text_capacity_ <= text_reserved_) return ok_status();
  LOAM_RETURN_IF_ERROR(account_->acquire(text_capacity_ - text_reserved_));
  text_reserved_ = text_capacity_;
  return ok_status();
}

/// Returns the group with this key, and adds it if there is none.
Result<size_t> GroupTable::group_of(Bytes key) {
  if (const auto group = keys_.find(key)) return *group;
  // The limits come first, and the memory before its use.
  if (groups_ >= max_groups_ || bytes() + key.size() + aggregates_.size() * sizeof(Accumulator) > max_bytes_) {
    return over_limit();
  }
  LOAM_RETURN_IF_ERROR(reserve_charged(accumulators_, aggregates_.size(), account_));
  LOAM_ASSIGN_OR_RETURN(const size_t group, keys_.add(key));
  add_accumulators();
  return group;
}

void GroupTable::update_text(size_t group, size_t aggregate, std::string_view value, bool first) {
  update_text_extreme(aggregates_[aggregate], value, first, accumulators(group)[aggregate]);
}

void GroupTable::update_text_extreme(const Column& column, std::string_view value, bool first, Accumulator& into) {
  // Only a new extreme is copied.
  if (!first && !better(column.op, value <=> std::string_view(into.text))) return;
  const TextGrowth growth(*this, into.text);
  into.text = value;
}

Status GroupTable::add_distinct(Column& column, size_t group, Bytes value) {
  // The number of the group comes before the value.
  distinct_key_.clear();
  ByteWriter out(distinct_key_);
  out.put(static_cast<uint32_t>(group));
  out.put_raw(value);
  if (column.distinct->find(distinct_key_)) return ok_status();
  if (bytes() + distinct_key_.size() > max_bytes_) return over_limit();
  LOAM_RETURN_IF_ERROR(column.distinct->add(distinct_key_).status());
  Accumulator& into = accumulators(group)[static_cast<size_t>(&column - aggregates_.data())];
  ++into.count;
  into.whole += value.size();
  return ok_status();
}

template <class Row>
Status GroupTable::accumulate(size_t group, size_t aggregate, const Row& row) {
  Column& column = aggregates_[aggregate];
  Accumulator& into = accumulators(group)[aggregate];
  if (column.op == AggregateOp::kCountAll) {
    ++into.count;
    return ok_status();
  }
  if (row.is_null(column.field)) return ok_status();
  if (is_distinct(column.op)) {
    key_.clear();
    ByteWriter out(key_);
    put_key(out, column.type, row, column.field);
    if (column.op == AggregateOp::kCountDistinct) return add_distinct(column, group, key_);
    const TextGrowth growth(*this, into.text);
    distinct_sketch::add(into.text, hash_of(key_));
    return ok_status();
  }
  if (is_variance(column.op)) {
    const double value = is_float(column.type)
                             ? get_real(column.type, row, column.field)
                             : real_of(get_integer(column.type, row, column.field), column.type.scale());
    into.add_spread(1, spread_of(value));
    return ok_status();
  }
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
  return ok_status();
}

Status GroupTable::add_value(size_t group, size_t aggregate, const GroupRow& row) {
  return accumulate(group, aggregate, row);
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
Status GroupTable::add_to(size_t group, const Row& row) {
  for (size_t i = 0; i < aggregates_.size(); ++i) LOAM_RETURN_IF_ERROR(accumulate(group, i, row));
  return ok_status();
}

template <class Row>
Status GroupTable::add_row(const Row& row) {
  LOAM_ASSIGN_OR_RETURN(const size_t group, group_of_row(row));
  LOAM_RETURN_IF_ERROR(add_to(group, row));
  return check_texts();
}

Status GroupTable::add_values(size_t group, const GroupRow& row) { return add_to(group, row); }

Status GroupTable::add(const RowView& row) { return add_row(row); }
Status GroupTable::add(const GroupRow& row) { return add_row(row); }

/// Adds the distinct values that a storage node has sent: keys one behind the other.
Status GroupTable::merge_distinct(size_t group, size_t aggregate, Bytes values) {
  Column& column = aggregates_[aggregate];
  ByteReader in(values);
  while (in.remaining() != 0) {
    const size_t begin = values.size() - in.remaining();
    bool valid = in.get<uint8_t>() == 1;
    if (is_variable(column.type)) {
      const Bytes bytes = in.get_raw(in.get<uint32_t>());
      valid = valid && (column.type == FieldType::kBlob || is_utf8(as_text(bytes)));
    } else {
      in.get_raw(fixed_width(column.type));
    }
    if (!valid) in.fail();
    LOAM_RETURN_IF_ERROR(in.status("distinct values"));
    LOAM_RETURN_IF_ERROR(add_distinct(column, group, values.subspan(begin, values.size() - in.remaining() - begin)));
  }
  return ok_status();
}

/// Merges the partial columns of one aggregate, which begin at column `at`, and returns the column after them.
Result<size_t> GroupTable::merge_one(size_t group, size_t aggregate, const ChunkView& partial, size_t at, size_t row) {
  const Column& column = aggregates_[aggregate];
  Accumulator& into = accumulators(group)[aggregate];
  // Unsigned arithmetic: numbers of a faulty storage node wrap around instead of causing undefined behaviour.
  const auto add_count = [&] {
    into.count =
        static_cast<int64_t>(static_cast<uint64_t>(into.count) + static_cast<uint64_t>(partial.get<int64_t>(at, row)));
  };
  if (column.op == AggregateOp::kCountAll || column.op == AggregateOp::kCount) {
    add_count();
    return at + 1;
  }
  if (column.op == AggregateOp::kCountDistinct) {
    LOAM_RETURN_IF_ERROR(merge_distinct(group, aggregate, as_bytes(partial.text(at, row))));
    return at + 1;
  }
  if (column.op == AggregateOp::kApproxCountDistinct) {
    const TextGrowth growth(*this, into.text);
    LOAM_RETURN_IF_ERROR(distinct_sketch::merge(into.text, partial.text(at, row)));
    return at + 1;
  }
  if (is_variance(column.op)) {
    const Accumulator::Spread spread{partial.get<double>(at, row), partial.get<double>(at + 1, row)};
    const auto n = partial.get<int64_t>(at + 2, row);
    if (n > 0) into.add_spread(n, spread);
    return at + 3;
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
    using Unsigned = unsigned __int128;
    const auto high = static_cast<Unsigned>(static_cast<uint64_t>(partial.get<int64_t>(at++, row)));
    const auto low = static_cast<Unsigned>(partial.get<uint64_t>(at++, row));
    into.add(static_cast<Int128>(high << 64 | low));
    if (is_long(column.type)) {
      const auto carry = static_cast<uint64_t>(partial.get<int64_t>(at++, row));
      into.carry = static_cast<int64_t>(static_cast<uint64_t>(into.carry) + carry);
    }
  }
  add_count();
  return at + 1;
}

Bytes GroupTable::key_of(const ChunkView& partial, size_t row) {
  key_.clear();
  ByteWriter out(key_);
  for (size_t i = 0; i < group_by_.size(); ++i) {
    if (partial.is_null(i, row)) {
      out.put<uint8_t>(0);
    } else {
      put_key(out, group_types_[i], partial, i, row);
    }
  }
  return key_;
}

Status GroupTable::merge(const ChunkView& partial, size_t row) {
  size_t group = 0;
  if (!group_by_.empty()) {
    LOAM_ASSIGN_OR_RETURN(group, group_of(key_of(partial, row)));
  }
  size_t at = group_by_.size();
  for (size_t i = 0; i < aggregates_.size(); ++i) {
    LOAM_ASSIGN_OR_RETURN(at, merge_one(group, i, partial, at, row));
  }
  return check_texts();
}

/// Appends the values of the key of a group, and returns their number.
size_t GroupTable::append_key(size_t group, ChunkBuilder& out) const {
  if (group_by_.empty()) return 0;
  ByteReader in(keys_.key(group));
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

/// The distinct values of a group, one behind the other. Valid until the next call.
Bytes GroupTable::distinct_values(Column& column, size_t group) {
  if (column.by_group.size() != column.distinct->size()) {
    column.by_group.clear();
    for (size_t number = 0; number < column.distinct->size(); ++number) {
      ByteReader in(column.distinct->key(number));
      column.by_group.emplace_back(in.get<uint32_t>(), static_cast<uint32_t>(number));
    }
    std::ranges::sort(column.by_group);
  }
  values_.clear();
  const std::pair<uint32_t, uint32_t> first(static_cast<uint32_t>(group), 0);
  for (auto at = std::ranges::lower_bound(column.by_group, first); at != column.by_group.end(); ++at) {
    if (at->first != group) break;
    const Bytes value = column.distinct->key(at->second).subspan(sizeof(uint32_t));
    values_.insert(values_.end(), value.begin(), value.end());
  }
  return values_;
}

/// Checks the bytes of the distinct values of a group, which travel in one row.
Status GroupTable::check_distinct(size_t group) {
  Int128 bytes = 0;
  for (size_t i = 0; i < aggregates_.size(); ++i) {
    if (aggregates_[i].distinct != nullptr) bytes += accumulators(group)[i].whole;
  }
  if (bytes <= kMaxDistinctBytes) return ok_status();
  return {StatusCode::kInvalidArgument, "query: the different values of a group have more than " +
                                            std::to_string(kMaxDistinctBytes) +
                                            " bytes; count them with approx_count_distinct, or select fewer rows"};
}

Status GroupTable::append_partial(size_t group, ChunkBuilder& out) {
  // Compute what may fail before the first append, so that an error leaves no incomplete row in `out`.
  LOAM_RETURN_IF_ERROR(check_distinct(group));
  size_t at = append_key(group, out);
  const Accumulator* from = accumulators(group);
  for (Column& column : aggregates_) {
    if (is_extreme(column.op)) {
      append_extreme(column, *from, at++, out);
    } else if (column.op == AggregateOp::kCountDistinct) {
      out.append_text(at++, as_text(distinct_values(column, group)));
    } else if (column.op == AggregateOp::kApproxCountDistinct) {
      out.append_text(at++, from->text);
    } else {
      if (is_variance(column.op)) {
        out.append(at++, from->spread.mean);
        out.append(at++, from->spread.squares);
      } else if (is_sum(column.op)) {
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
  return ok_status();
}

Result<Value> GroupTable::result(const Column& column, const Accumulator& from) const {
  const bool average = column.op == AggregateOp::kAvg;
  if (from.count == 0) return Value::null();
  if (is_variance(column.op)) {
    const bool sample = column.op == AggregateOp::kVarSample || column.op == AggregateOp::kStddevSample;
    if (sample && from.count == 1) return Value::null();
    const double variance = from.spread.squares / static_cast<double>(sample ? from.count - 1 : from.count);
    const bool root = column.op == AggregateOp::kStddevSample || column.op == AggregateOp::kStddevPopulation;
    return Value::float64(root ? std::sqrt(variance) : variance);
  }
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
  // Compute what may fail before the first append, so that an error leaves no incomplete row in `out`.
  LOAM_RETURN_IF_ERROR(check_distinct(group));
  results_.clear();
  for (size_t i = 0; i < aggregates_.size(); ++i) {
    if (!is_computed(aggregates_[i].op)) continue;
    Result<Value> value = result(aggregates_[i], from[i]);
    if (!value.ok()) {
      return {value.code(), names_[group_by_.size() + i] + " " + std::string(value.status().message())};
    }
    results_.push_back(std::move(*value));
  }
  size_t at = append_key(group, out), next = 0;
  for (const Column& column : aggregates_) {
    if (is_computed(column.op)) {
      out.append_value(at, results_[next++]);
    } else if (column.op == AggregateOp::kApproxCountDistinct) {
      out.append(at, distinct_sketch::estimate(from->text));
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
