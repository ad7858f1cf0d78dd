#include "common/result/row_results.h"

#include <array>
#include <utility>

namespace loam {
namespace {

std::vector<FieldType> types_of(const Schema& schema) {
  std::vector<FieldType> types;
  for (const Field& field : schema.fields()) types.push_back(field.type);
  return types;
}

/// A row of a batch, for groups.
class BatchRow final : public GroupRow {
 public:
  BatchRow(RowSelection& columns, size_t row) : columns_(columns), row_(row) {}

  bool is_null(size_t column) const override { return !lanes(column).present.test(row_); }
  Int128 whole(size_t column) const override {
    const ColumnLanes of = lanes(column);
    if (columns_.type(static_cast<uint16_t>(column)) == FieldType::kBoolean) return of.truths.test(row_) ? 1 : 0;
    return of.whole(row_);
  }
  double real(size_t column) const override { return lanes(column).reals[row_]; }
  std::string_view text(size_t column) const override { return lanes(column).texts[row_]; }

 private:
  const ColumnLanes& lanes(size_t column) const { return columns_.lanes(static_cast<uint16_t>(column)); }

  RowSelection& columns_;
  const size_t row_;
};

}  // namespace

RowResults::RowResults(const Schema& schema, Query query)
    : query_(std::move(query)),
      partial_(std::make_shared<const ResultSchema>(query_.partial_schema(schema))),
      batch_(types_of(schema)),
      selection_(batch_, query_.computed, query_.where),
      builder_(*partial_) {
  Query result = query_;
  result.where = {};
  result.for_each_use([this](uint16_t column) {
    if (column >= kFirstComputed) used_.push_back(column);
  });
  if (query_.aggregating()) groups_.emplace(schema, query_);
}

Status RowResults::add(Key key, Version version, const RowView& row) {
  batch_.add(row);
  identities_.push_back({key, version});
  return batch_.full() ? evaluate() : ok_status();
}

Status RowResults::evaluate() {
  selection_.begin_batch();
  const auto [selected, failed] = selection_.selected();
  if (failed.any()) return selection_.error(failed.front());
  for (const uint16_t column : used_) {
    if (const RowMask errors = selected & selection_.lanes(column).failed; errors.any()) {
      return selection_.error(column, errors.front());
    }
  }
  std::array<uint16_t, kBlockRows> numbers;
  const size_t count = selected.numbers(numbers.data());
  for (size_t i = 0; i < count; ++i) {
    if (groups_) {
      if (!query_.group_by.empty() && groups_->nearly_full()) LOAM_RETURN_IF_ERROR(end_groups());
      LOAM_RETURN_IF_ERROR(groups_->add(BatchRow(selection_, numbers[i])));
    } else {
      LOAM_RETURN_IF_ERROR(append(numbers[i]));
    }
  }
  batch_.clear();
  identities_.clear();
  return ok_status();
}

/// Appends a row of a projection.
Status RowResults::append(size_t row) {
  size_t at = 0;
  if (query_.with_key) builder_.append(at++, identities_[row].key.value);
  if (query_.with_version) builder_.append(at++, identities_[row].version.value);
  const auto append_column = [&](uint16_t column) {
    builder_.append_value(at++, value_of(selection_.lanes(column), selection_.type(column), row));
  };
  for (const uint16_t column : query_.select) append_column(column);
  if (query_.top_k) append_column(query_.top_k->field);
  builder_.end_row();
  return ends_client_chunk(builder_) ? end_chunk() : ok_status();
}

Status RowResults::end_chunk() {
  if (builder_.rows() == 0) return ok_status();
  Buffer bytes;
  LOAM_RETURN_IF_ERROR(builder_.finish(bytes));
  LOAM_ASSIGN_OR_RETURN(auto chunk, Chunk::adopt(std::move(bytes), partial_));
  chunks_.push_back(std::move(chunk));
  return ok_status();
}

/// Appends the groups and begins anew.
Status RowResults::end_groups() {
  for (size_t group = 0; group < groups_->groups(); ++group) {
    LOAM_RETURN_IF_ERROR(groups_->append_partial(group, builder_));
    if (ends_client_chunk(builder_)) LOAM_RETURN_IF_ERROR(end_chunk());
  }
  groups_->clear();
  return ok_status();
}

Result<std::vector<std::shared_ptr<const Chunk>>> RowResults::finish() {
  LOAM_RETURN_IF_ERROR(evaluate());
  if (groups_) LOAM_RETURN_IF_ERROR(end_groups());
  LOAM_RETURN_IF_ERROR(end_chunk());
  return std::move(chunks_);
}

}  // namespace loam
