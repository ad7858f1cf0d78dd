// Order of evaluation, and the operations that treat NULLs and errors of their arguments in their own way.
#include "common/expression/evaluator.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"
#include "common/expression/computed_lanes.h"
#include "common/schema/order_key.h"

namespace loam {
namespace {

/// Columns with equal encodings have equal values. Constants such as 0 and -0 are equal, but not everywhere.
std::string encoding_of(const Computed& column) {
  Buffer bytes;
  ByteWriter out(bytes);
  encode({&column, 1}, out);
  return std::string(as_text(bytes));
}

/// Fills the lanes of a constant, which stay valid for all batches.
void fill_constant(ComputedLanes& work) {
  const Value& value = work.column.constants.front();
  const FieldType type = work.column.type;
  if (value.is_null()) {
    if (is_variable(type)) {
      work.texts();
    } else if (is_float(type)) {
      std::fill_n(work.reals(), kBlockRows, 0.0);
    } else if (type != FieldType::kBoolean) {
      std::fill_n(work.keys(), kBlockRows, 0);
    }
  } else if (is_variable(type)) {
    std::fill_n(work.texts(), kBlockRows, value.as_text());
  } else if (is_float(type)) {
    std::fill_n(work.reals(), kBlockRows, value.as_float64());
  } else if (is_long(type)) {
    const Int128 number = value.as_decimal();
    if (const auto key = static_cast<int64_t>(number); key == number) {
      std::fill_n(work.keys(), kBlockRows, key);
      work.lanes.magnitude = ColumnLanes::magnitude_of(key, key);
    } else {
      std::fill_n(work.longs(), kBlockRows, number);
    }
  } else if (type != FieldType::kBoolean) {
    std::fill_n(work.keys(), kBlockRows, value.as_int64());
    work.lanes.magnitude = ColumnLanes::magnitude_of(value.as_int64(), value.as_int64());
  }
}

/// What the operation needs of its constants.
void prepare(ComputedLanes& work) {
  const std::vector<Value>& constants = work.column.constants;
  if (work.column.operation == Operation::kConstant) return fill_constant(work);
  if (work.column.operation != Operation::kIn) return;
  for (const Value& value : constants) {
    if (is_variable(value.type())) {
      work.in_texts.emplace_back(value.as_text());
    } else if (is_long(value.type())) {
      work.in_longs.push_back(value.as_decimal());
    } else {
      work.in_keys.push_back(is_float(value.type()) ? order_key(value.as_float64()) : value.as_int64());
    }
  }
  std::ranges::sort(work.in_keys);
  std::ranges::sort(work.in_longs);
  std::ranges::sort(work.in_texts);
}

void compute_and(ComputedLanes& work, std::span<const Argument> arguments, const RowMask& all) {
  RowMask lost, failed, null;  // lost: rows that decide the result alone
  const bool conjunction = work.column.operation == Operation::kAnd;
  for (const Argument& argument : arguments) {
    const ColumnLanes& lanes = argument.lanes;
    lost |= conjunction ? lanes.present - lanes.truths : lanes.truths;
    failed |= lanes.failed;
    null |= all - lanes.present - lanes.failed;
  }
  work.lanes.failed = failed - lost;
  work.lanes.present = all - work.lanes.failed - (null - lost);
  work.lanes.truths = conjunction ? work.lanes.present - lost : lost;
}

}  // namespace

ExpressionEvaluator::ExpressionEvaluator(FieldSource& fields) : fields_(fields) {}
ExpressionEvaluator::~ExpressionEvaluator() = default;

void ComputedLanes::ensure_array() {
  const FieldType type = column.type;
  if (type == FieldType::kBoolean) return;
  if (is_variable(type)) {
    if (lanes.texts == nullptr) texts();
  } else if (is_float(type)) {
    if (lanes.reals == nullptr) reals();
  } else if (lanes.longs == nullptr && lanes.keys == nullptr) {
    keys();
  }
}

void ComputedLanes::copy(const ColumnLanes& from, const RowMask& rows) {
  const RowMask taken = rows & from.present;
  lanes.present |= taken;
  lanes.truths |= taken & from.truths;
  if (from.texts != nullptr) {
    taken.for_each([&, out = texts()](size_t row) { out[row] = from.texts[row]; });
  } else if (from.reals != nullptr) {
    taken.for_each([&, out = reals()](size_t row) { out[row] = from.reals[row]; });
  } else if (lanes.longs != nullptr || from.longs != nullptr) {
    if (lanes.longs == nullptr && lanes.keys != nullptr) {
      // The rows so far fit 64 bits, and these do not.
      const int64_t* const keys = std::exchange(lanes.keys, nullptr);
      std::copy_n(keys, kBlockRows, longs());
    }
    taken.for_each([&, out = longs()](size_t row) { out[row] = from.whole(row); });
  } else if (from.keys != nullptr) {
    taken.for_each([&, out = keys()](size_t row) { out[row] = from.keys[row]; });
  }
}

Result<uint16_t> ExpressionEvaluator::add(const Computed& column) {
  auto [place, is_new] = numbers_.try_emplace(encoding_of(column), 0);
  if (!is_new) {
    ++columns_[place->second - kFirstComputed]->uses;
    return place->second;
  }
  if (free_.empty() && kFirstComputed + columns_.size() == kMaxColumns) {
    numbers_.erase(place);
    return Status(StatusCode::kOverloaded, "expressions: " + std::to_string(columns_.size()) +
                                               " operations are in use, the limit; try again when a query has ended");
  }
  if (free_.empty()) {
    free_.push_back(static_cast<uint16_t>(kFirstComputed + columns_.size()));
    columns_.emplace_back();
  }
  const uint16_t number = free_.back();
  free_.pop_back();
  place->second = number;
  auto work = std::make_unique<ComputedLanes>();
  work->column = column;
  work->number = number;
  work->uses = 1;
  prepare(*work);
  columns_[number - kFirstComputed] = std::move(work);
  for (const uint16_t argument : column.arguments) {
    if (argument >= kFirstComputed) ++columns_[argument - kFirstComputed]->uses;
  }
  return number;
}

void ExpressionEvaluator::release(uint16_t number) {
  // A column without users releases its arguments, and these theirs: a list instead of a recursion, which may be deep.
  std::vector<uint16_t> left = {number};
  while (!left.empty()) {
    const uint16_t next = left.back();
    left.pop_back();
    std::unique_ptr<ComputedLanes>& work = columns_[next - kFirstComputed];
    if (--work->uses != 0) continue;
    for (const uint16_t argument : work->column.arguments) {
      if (argument >= kFirstComputed) left.push_back(argument);
    }
    numbers_.erase(encoding_of(work->column));
    work = nullptr;
    free_.push_back(next);
  }
}

const ColumnLanes& ExpressionEvaluator::lanes(uint16_t number) {
  return number < kFirstComputed ? fields_.lanes(number) : computed(number);
}

void ExpressionEvaluator::begin_batch() {
  ++batch_;
  texts_left_ = kMaxBatchTexts;
  for (const uint16_t number : kept_) {
    if (ComputedLanes* const work = columns_[number - kFirstComputed].get()) work->bytes = std::string();
  }
  kept_.clear();
}

const ColumnLanes& ExpressionEvaluator::computed(uint16_t number) {
  ComputedLanes& work = *columns_[number - kFirstComputed];
  if (work.batch != batch_) compute_all(work);
  return work.lanes;
}

// A list instead of a recursion, which may be deep.
void ExpressionEvaluator::compute_all(ComputedLanes& asked) {
  pending_.push_back(asked.number);
  while (!pending_.empty()) {
    ComputedLanes& work = *columns_[pending_.back() - kFirstComputed];
    const size_t before = pending_.size();
    for (const uint16_t argument : work.column.arguments) {
      if (argument >= kFirstComputed && columns_[argument - kFirstComputed]->batch != batch_) {
        pending_.push_back(argument);
      }
    }
    if (pending_.size() != before) continue;
    pending_.pop_back();
    if (std::exchange(work.batch, batch_) == batch_) continue;  // it was on the list twice
    compute(work);
    work.ensure_array();
    if (work.bytes.capacity() > kKeptTextBytes) kept_.push_back(work.number);
  }
}

void ExpressionEvaluator::compute(ComputedLanes& work) {
  const RowMask& all = fields_.all();
  const Computed& column = work.column;
  if (column.operation == Operation::kConstant) {
    const Value& value = column.constants.front();
    work.lanes.present = value.is_null() ? RowMask() : all;
    if (value.type() == FieldType::kBoolean) work.lanes.truths = value.as_boolean() ? all : RowMask();
    return;
  }
  work.clear();
  std::vector<Argument>& arguments = arguments_;
  arguments.clear();
  for (const uint16_t argument : column.arguments) arguments.push_back({type(argument), lanes(argument)});
  // Takes over the errors of an argument at these rows.
  const auto fail_as = [&](size_t argument, const RowMask& rows) {
    const uint16_t of = column.arguments[argument];
    if (of < kFirstComputed) return;
    const RowMask more = (rows & arguments[argument].lanes.failed) - work.lanes.failed;
    ComputedLanes& from = *columns_[of - kFirstComputed];
    more.for_each([&](size_t row) { work.failure(row) = from.failure(row); });
    work.lanes.failed |= more;
  };
  switch (column.operation) {
    case Operation::kAnd:
    case Operation::kOr: {
      compute_and(work, arguments, all);
      const RowMask failed = std::exchange(work.lanes.failed, {});
      for (size_t i = 0; i < arguments.size(); ++i) fail_as(i, failed);
      return;
    }
    case Operation::kIsNull:
      fail_as(0, all);
      work.lanes.present = all - work.lanes.failed;
      work.lanes.truths = work.lanes.present - arguments[0].lanes.present;
      return;
    case Operation::kCase: {
      RowMask left = all;
      for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
        fail_as(i, left);
        left -= arguments[i].lanes.failed;
        const RowMask taken = left & arguments[i].lanes.truths;
        work.copy(arguments[i + 1].lanes, taken);
        fail_as(i + 1, taken);
        left -= taken;
      }
      if (arguments.size() % 2 == 0) return;
      work.copy(arguments.back().lanes, left);
      fail_as(arguments.size() - 1, left);
      return;
    }
    case Operation::kCoalesce: {
      RowMask left = all;
      for (size_t i = 0; i < arguments.size(); ++i) {
        work.copy(arguments[i].lanes, left);
        fail_as(i, left);
        left -= arguments[i].lanes.present | arguments[i].lanes.failed;
      }
      return;
    }
    default:
      break;
  }
  // All other operations are NULL if an argument is NULL, and an error if an argument is one.
  work.lanes.present = all;
  for (size_t i = 0; i < arguments.size(); ++i) {
    fail_as(i, all);
    work.lanes.present &= arguments[i].lanes.present;
  }
  work.lanes.present -= work.lanes.failed;
  compute_strict(work, arguments);
}

void ExpressionEvaluator::compute_strict(ComputedLanes& work, std::span<const Argument> arguments) {
  switch (work.column.operation) {
    case Operation::kAdd:
    case Operation::kSubtract:
    case Operation::kMultiply:
    case Operation::kDivide:
    case Operation::kModulo:
      compute_arithmetic(work, arguments[0], arguments[1]);
      break;
    case Operation::kNegate:
      compute_negation(work, arguments[0]);
      break;
    case Operation::kEqual:
    case Operation::kNotEqual:
    case Operation::kLess:
    case Operation::kLessEqual:
    case Operation::kGreater:
    case Operation::kGreaterEqual:
      compute_comparison(work, arguments[0], arguments[1]);
      break;
    case Operation::kIn:
      compute_in(work, arguments[0]);
      break;
    case Operation::kNot:
      work.lanes.truths = work.lanes.present - arguments[0].lanes.truths;
      break;
    case Operation::kCast:
      compute_cast(work, arguments[0]);
      break;
    case Operation::kLike:
      compute_like(work, arguments[0], arguments[1]);
      break;
    case Operation::kDatePart:
    case Operation::kTruncate:
      compute_date(work, arguments[0]);
      break;
    case Operation::kBucket:
      compute_bucket(work, arguments[0], arguments[1]);
      break;
    default:
      compute_text(work, arguments, texts_left_);
  }
}

FieldType ExpressionEvaluator::type(uint16_t number) const {
  return number < kFirstComputed ? fields_.type(number) : columns_[number - kFirstComputed]->column.type;
}

Status ExpressionEvaluator::error(uint16_t number, size_t row) const {
  ComputedLanes& work = *columns_[number - kFirstComputed];
  LOAM_DCHECK(work.lanes.failed.test(row), "the row has an error");
  const ComputedLanes::Failure failure = work.failure(row);
  const std::string name(to_string(columns_[failure.column - kFirstComputed]->column.operation));
  const std::string type = to_string(columns_[failure.column - kFirstComputed]->column.type);
  switch (failure.fault) {
    case ExpressionFault::kOutOfRange:
      return {StatusCode::kOverflow, "the result of " + name + " is outside of the range of " + type};
    case ExpressionFault::kDivisionByZero:
      return {StatusCode::kInvalidArgument, "division by zero (" + name + ")"};
    case ExpressionFault::kInvalidText:
      return {StatusCode::kInvalidArgument, "a text is no value of type " + type + " (" + name + ")"};
    case ExpressionFault::kNegativeLength:
      return {StatusCode::kInvalidArgument, "a substring of a negative number of characters"};
    case ExpressionFault::kTextTooLong:
      return {StatusCode::kOverflow,
              "the text that " + name + " makes has more than " + std::to_string(kMaxComputedText) + " bytes"};
    case ExpressionFault::kTextsTooLong:
      return {StatusCode::kOverloaded, "the texts that expressions make of " + std::to_string(kBlockRows) +
                                           " rows have more than " + std::to_string(kMaxBatchTexts) +
                                           " bytes; make shorter texts, or ask fewer queries at a time"};
    case ExpressionFault::kPatternTooLong:
      return {StatusCode::kInvalidArgument,
              "a pattern of LIKE has more than " + std::to_string(kMaxPattern) + " bytes"};
    case ExpressionFault::kPatternEnds:
      return {StatusCode::kInvalidArgument, "a pattern of LIKE ends with its escape character"};
    case ExpressionFault::kWidthNotPositive:
      return {StatusCode::kInvalidArgument, "the width of a bucket is not above zero"};
    case ExpressionFault::kNone:
      break;
  }
  return {StatusCode::kInvalidArgument, "an expression has no value"};
}

}  // namespace loam
