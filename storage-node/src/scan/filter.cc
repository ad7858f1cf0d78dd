#include "storage-node/src/scan/filter.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

namespace loam::storage {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Copies the numbers that pass, without a branch on the outcome.
template <class Test>
size_t copy_if(const uint16_t* in, size_t n, uint16_t* out, Test test) {
  size_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint16_t row = in[i];
    out[kept] = row;
    kept += test(row) ? 1 : 0;
  }
  return kept;
}

int64_t key_of(const Value& value) { return is_float(value.type()) ? order_key(value.as_float64()) : value.as_int64(); }

/// Calls f with a function from a row's field to its key.
template <class F>
auto with_key(FieldType type, uint32_t offset, F f) {
  switch (type) {
    case FieldType::kInt16:
      return f([offset](const std::byte* row) { return int64_t{load<int16_t>(row + offset)}; });
    case FieldType::kInt32:
      return f([offset](const std::byte* row) { return int64_t{load<int32_t>(row + offset)}; });
    case FieldType::kFloat32:
      return f([offset](const std::byte* row) { return order_key(static_cast<double>(load<float>(row + offset))); });
    case FieldType::kFloat64:
      return f([offset](const std::byte* row) { return order_key(load<double>(row + offset)); });
    default:
      return f([offset](const std::byte* row) { return load<int64_t>(row + offset); });
  }
}

}  // namespace

int64_t order_key(double value) {
  if (value != value) return kHighest;
  const auto bits = std::bit_cast<int64_t>(value + 0.0);  // -0 + 0 is +0
  return bits ^ ((bits >> 63) & kHighest);                // negative numbers fall as their bits rise
}

CompiledPredicate::CompiledPredicate(const Predicate& predicate, const Schema& schema)
    : op_(predicate.op),
      type_(schema.field(predicate.field).type),
      field_(predicate.field),
      null_bit_(schema.layout(predicate.field).null_bit),
      variable_index_(schema.layout(predicate.field).variable_index),
      offset_(schema.layout(predicate.field).offset),
      null_offset_(schema.null_offset()),
      fixed_size_(schema.fixed_size()) {
  if (op_ == PredicateOp::kIsNull || op_ == PredicateOp::kIsNotNull) {
    test_ = op_ == PredicateOp::kIsNull ? Test::kNull : Test::kNotNull;
  } else if (is_variable(type_)) {
    test_ = Test::kText;
    for (const Value& operand : predicate.operands) texts_.emplace_back(operand.as_text());
    std::sort(texts_.begin(), texts_.end());
  } else if (op_ == PredicateOp::kIn) {
    test_ = Test::kIn;
    for (const Value& operand : predicate.operands) keys_.push_back(key_of(operand));
    std::sort(keys_.begin(), keys_.end());
  } else {
    set_range(op_, key_of(predicate.operands[0]));
  }
}

void CompiledPredicate::set_range(PredicateOp op, int64_t key) {
  test_ = op == PredicateOp::kNotEqual ? Test::kOutside : Test::kRange;
  low_ = high_ = key;
  const auto nothing = [this] { low_ = kHighest, high_ = kLowest; };
  switch (op) {
    case PredicateOp::kLess:
      low_ = kLowest;
      if (key == kLowest) return nothing();
      high_ = key - 1;
      break;
    case PredicateOp::kLessEqual:
      low_ = kLowest;
      break;
    case PredicateOp::kGreater:
      high_ = kHighest;
      if (key == kHighest) return nothing();
      low_ = key + 1;
      break;
    case PredicateOp::kGreaterEqual:
      high_ = kHighest;
      break;
    default:
      break;
  }
}

bool CompiledPredicate::intersect(const CompiledPredicate& other) {
  if (test_ != Test::kRange || other.test_ != Test::kRange || field_ != other.field_) return false;
  low_ = std::max(low_, other.low_);
  high_ = std::min(high_, other.high_);
  return true;
}

size_t CompiledPredicate::keep(const Block& block, const uint16_t* in, size_t n, uint16_t* out) const {
  if (test_ == Test::kNotNull) return keep_present(block, in, n, out);
  if (test_ == Test::kNull) {
    if (null_bit_ == FieldLayout::kNone) return 0;
    const uint32_t at = null_offset_ + null_bit_ / 8;
    const auto mask = static_cast<std::byte>(1u << (null_bit_ % 8));
    return copy_if(in, n, out, [&](uint16_t row) { return (block.row(row)[at] & mask) != std::byte{0}; });
  }
  if (null_bit_ != FieldLayout::kNone) {  // every other test is UNKNOWN on NULL
    n = keep_present(block, in, n, out);
    in = out;
  }
  return test_ == Test::kText ? keep_texts(block, in, n, out) : keep_numbers(block, in, n, out);
}

size_t CompiledPredicate::keep_present(const Block& block, const uint16_t* in, size_t n, uint16_t* out) const {
  if (null_bit_ == FieldLayout::kNone) {
    if (in != out) std::copy(in, in + n, out);
    return n;
  }
  const uint32_t at = null_offset_ + null_bit_ / 8;
  const auto mask = static_cast<std::byte>(1u << (null_bit_ % 8));
  return copy_if(in, n, out, [&](uint16_t row) { return (block.row(row)[at] & mask) == std::byte{0}; });
}

size_t CompiledPredicate::keep_numbers(const Block& block, const uint16_t* in, size_t n, uint16_t* out) const {
  return with_key(type_, offset_, [&](auto key) -> size_t {
    if (test_ == Test::kIn) {
      return copy_if(in, n, out, [&](uint16_t row) {
        const int64_t x = key(block.row(row));
        return x >= keys_.front() && x <= keys_.back() && std::binary_search(keys_.begin(), keys_.end(), x);
      });
    }
    // One unsigned comparison: low ≤ x ≤ high.
    const auto low = static_cast<uint64_t>(low_);
    const uint64_t width = static_cast<uint64_t>(high_) - low;
    if (test_ == Test::kOutside) {
      return copy_if(in, n, out, [&](uint16_t row) { return static_cast<uint64_t>(key(block.row(row))) != low; });
    }
    if (low_ > high_) return 0;
    return copy_if(in, n, out, [&](uint16_t row) { return static_cast<uint64_t>(key(block.row(row))) - low <= width; });
  });
}

size_t CompiledPredicate::keep_texts(const Block& block, const uint16_t* in, size_t n, uint16_t* out) const {
  const auto text = [&](uint16_t number) {
    const std::byte* const row = block.row(number);
    const auto end = load<uint32_t>(row + offset_);
    const uint32_t begin = variable_index_ == 0 ? fixed_size_ : load<uint32_t>(row + offset_ - sizeof(uint32_t));
    return std::string_view(reinterpret_cast<const char*>(row) + begin, end - begin);
  };
  const std::string_view x = texts_.front();
  const auto keep_if = [&](auto test) {
    return copy_if(in, n, out, [&](uint16_t number) { return test(text(number)); });
  };
  switch (op_) {
    case PredicateOp::kEqual:
      return keep_if([x](std::string_view t) { return t == x; });
    case PredicateOp::kNotEqual:
      return keep_if([x](std::string_view t) { return t != x; });
    case PredicateOp::kLess:
      return keep_if([x](std::string_view t) { return t < x; });
    case PredicateOp::kLessEqual:
      return keep_if([x](std::string_view t) { return t <= x; });
    case PredicateOp::kGreater:
      return keep_if([x](std::string_view t) { return t > x; });
    case PredicateOp::kGreaterEqual:
      return keep_if([x](std::string_view t) { return t >= x; });
    case PredicateOp::kIn:
      return keep_if(
          [this](std::string_view t) { return std::binary_search(texts_.begin(), texts_.end(), t, std::less<>()); });
    case PredicateOp::kPrefix:
      return keep_if([x](std::string_view t) { return t.starts_with(x); });
    case PredicateOp::kSuffix:
      return keep_if([x](std::string_view t) { return t.ends_with(x); });
    case PredicateOp::kContains:
      return keep_if([x](std::string_view t) { return t.find(x) != std::string_view::npos; });
    default:
      return 0;
  }
}

CompiledSelection::CompiledSelection(const Selection& selection, const Schema& schema) {
  for (const Clause& clause : selection.all) {
    std::vector<CompiledPredicate> compiled;
    compiled.reserve(clause.any.size());
    for (const Predicate& predicate : clause.any) compiled.emplace_back(predicate, schema);
    const bool merged = compiled.size() == 1 && std::any_of(clauses_.begin(), clauses_.end(), [&](auto& other) {
                          return other.size() == 1 && other.front().intersect(compiled.front());
                        });
    if (!merged) clauses_.push_back(std::move(compiled));
  }
  const auto cheap = [](const CompiledPredicate& predicate) { return !predicate.expensive(); };
  for (auto& clause : clauses_) std::stable_partition(clause.begin(), clause.end(), cheap);
  std::stable_partition(clauses_.begin(), clauses_.end(),
                        [&](const auto& clause) { return std::all_of(clause.begin(), clause.end(), cheap); });
}

size_t CompiledSelection::keep(const Block& block, const uint16_t* in, size_t n, uint16_t* out) const {
  if (clauses_.empty() && in != out) std::copy(in, in + n, out);
  for (const auto& clause : clauses_) {
    if (n == 0) break;
    if (clause.size() == 1) {
      n = clause.front().keep(block, in, n, out);
    } else {
      // OR: each predicate sees what none before it has taken.
      std::array<uint8_t, Block::kRows> taken{};
      RowNumbers rest, hits;
      std::copy(in, in + n, rest.begin());
      size_t left = n;
      for (const CompiledPredicate& predicate : clause) {
        if (left == 0) break;
        const size_t hit = predicate.keep(block, rest.data(), left, hits.data());
        for (size_t i = 0; i < hit; ++i) taken[hits[i]] = 1;
        left = copy_if(rest.data(), left, rest.data(), [&](uint16_t row) { return taken[row] == 0; });
      }
      n = copy_if(in, n, out, [&](uint16_t row) { return taken[row] != 0; });
    }
    in = out;
  }
  return n;
}

}  // namespace loam::storage
