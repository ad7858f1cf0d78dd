// ResultMerger forwards to one of three parts: GroupTable for aggregates, TopRows for a top-k, or pass() for a plain
// projection.
#include "common/result/merge.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/expression/field_batch.h"
#include "common/expression/row_selection.h"
#include "common/result/aggregate.h"
#include "common/result/group_runs.h"
#include "common/result/top_rows.h"

namespace loam {

class ResultMerger::Impl {
 public:
  Impl(const Schema& schema, Query query, Sink sink, const Limits& limits)
      : query_(std::move(query)),
        sink_(std::move(sink)),
        max_ranked_bytes_(limits.ranked_bytes),
        partial_(std::make_shared<const ResultSchema>(query_.partial_schema(schema))),
        result_(std::make_shared<const ResultSchema>(query_.result_schema(schema))),
        builder_(*result_),
        rows_(*result_),
        runs_(partial_) {
    if (query_.aggregating()) groups_.emplace(schema, query_, limits.groups);
    if (query_.top_k) top_.emplace(*query_.top_k);
  }

  Status add(const std::shared_ptr<const Chunk>& partial) {
    const ChunkView& view = partial->view();
    if (view.columns() != partial_->size()) {
      return {StatusCode::kInvalidArgument, "merge: the chunk is not of this query's partial schema"};
    }
    if (groups_) {
      for (size_t row = 0; row < view.rows(); ++row) {
        // Groups beyond the memory go to a file.
        if (!query_.group_by.empty() && groups_->nearly_full()) LOAM_RETURN_IF_ERROR(runs_.add(*groups_));
        LOAM_RETURN_IF_ERROR(groups_->merge(view, row));
      }
      return ok_status();
    }
    if (top_) {
      for (size_t row = 0; row < view.rows(); ++row) LOAM_RETURN_IF_ERROR(add_to_top(view, row));
      return ok_status();
    }
    return pass(partial);
  }

  bool limit_reached() const { return query_.limit != 0 && passed_ >= query_.limit; }

  Status finish() {
    if (groups_ && runs_.empty()) {
      LOAM_RETURN_IF_ERROR(return_groups());
    } else if (groups_) {
      LOAM_RETURN_IF_ERROR(runs_.add(*groups_));
      const auto batch = [this]() -> Result<bool> {
        LOAM_RETURN_IF_ERROR(return_groups());
        return !limit_reached();
      };
      LOAM_RETURN_IF_ERROR(runs_.merge(*groups_, batch));
    }
    LOAM_RETURN_IF_ERROR(return_ranked());
    if (top_) {
      for (const TopRows::Row& row : top_->release_sorted()) {
        builder_.append_row(row.values);
        LOAM_RETURN_IF_ERROR(send_if_full());
      }
    }
    return builder_.rows() == 0 ? ok_status() : send();
  }

  const std::shared_ptr<const ResultSchema>& partial_schema() const { return partial_; }
  const std::shared_ptr<const ResultSchema>& result_schema() const { return result_; }

 private:
  /// A group of the result, and its values of the columns of the order.
  struct Ranked {
    std::vector<Value> by;
    std::vector<Value> row;

    size_t bytes() const {
      size_t bytes = sizeof(Ranked);
      for (const auto* const values : {&by, &row}) {
        for (const Value& value : *values) bytes += size_of(value);
      }
      return bytes;
    }
  };

  /// Adds a row of a partial chunk, whose last column is the field of the top-k.
  Status add_to_top(const ChunkView& view, size_t row) {
    Value by = view.value(view.columns() - 1, row);
    if (!top_->qualifies(by)) return ok_status();
    std::vector<Value> values(view.columns() - 1);
    for (size_t i = 0; i < values.size(); ++i) values[i] = view.value(i, row);
    return top_->add(std::move(by), std::move(values));
  }

  /// Passes on a chunk of a projection, whose partial schema equals the result schema. Copies rows only from the chunk
  /// that crosses the limit.
  Status pass(const std::shared_ptr<const Chunk>& partial) {
    if (partial->rows() == 0 || limit_reached()) return ok_status();
    if (query_.limit == 0 || partial->rows() <= query_.limit - passed_) {
      passed_ += partial->rows();
      return sink_(partial);
    }
    for (size_t row = 0; passed_ < query_.limit; ++row, ++passed_) {
      for (size_t i = 0; i < result_->size(); ++i) builder_.append_value(i, partial->view().value(i, row));
      builder_.end_row();
    }
    return send();
  }

  Status return_group(size_t group) {
    LOAM_RETURN_IF_ERROR(groups_->append_result(group, builder_));
    ++passed_;
    return send_if_full();
  }

  /// Returns the groups of the table, those that the conditions select. Groups with an order are kept until the end.
  Status return_groups() {
    const GroupSelection& groups = query_.groups;
    if (groups.empty()) {
      for (size_t group = 0; group < groups_->groups() && !limit_reached(); ++group) {
        LOAM_RETURN_IF_ERROR(return_group(group));
      }
      return ok_status();
    }
    std::vector<FieldType> types;
    for (const Field& column : result_->columns) types.push_back(column.type);
    FieldBatch batch(std::move(types));
    RowSelection selection(batch, groups.computed, groups.where);
    for (size_t first = 0, next = 0; first < groups_->groups() && !limit_reached(); first = next) {
      LOAM_ASSIGN_OR_RETURN(const auto rows, result_rows(first));
      next = first + rows->rows();
      batch.clear();
      for (size_t row = 0; row < rows->rows(); ++row) batch.add(rows->view(), row);
      selection.begin_batch();
      const auto [selected, failed] = selection.selected();
      if (failed.any()) return selection.error(failed.front());
      std::array<uint16_t, kBlockRows> numbers;
      const size_t count = selected.numbers(numbers.data());
      for (size_t i = 0; i < count && !limit_reached(); ++i) {
        if (groups.order_by.empty()) {
          LOAM_RETURN_IF_ERROR(return_group(first + numbers[i]));
        } else {
          LOAM_RETURN_IF_ERROR(rank(selection, rows->view(), numbers[i]));
        }
      }
      LOAM_RETURN_IF_ERROR(keep_first());
    }
    return ok_status();
  }

  /// Some groups as rows of the result: from `first` on, as many as fit into a batch.
  Result<std::shared_ptr<const Chunk>> result_rows(size_t first) {
    for (size_t group = first; group < groups_->groups() && rows_.rows() < kBlockRows; ++group) {
      LOAM_RETURN_IF_ERROR(groups_->append_result(group, rows_));
      if (rows_.bytes() >= kClientChunkBytes) break;
    }
    Buffer bytes;
    LOAM_RETURN_IF_ERROR(rows_.finish(bytes));
    return Chunk::adopt(std::move(bytes), result_);
  }

  Status rank(RowSelection& selection, const ChunkView& rows, size_t row) {
    Ranked& ranked = ranked_.emplace_back();
    for (const OrderColumn& by : query_.groups.order_by) {
      const ColumnLanes& lanes = selection.lanes(by.column);
      if (lanes.failed.test(row)) return selection.error(by.column, row);
      ranked.by.push_back(value_of(lanes, selection.type(by.column), row));
    }
    for (size_t i = 0; i < rows.columns(); ++i) ranked.row.push_back(rows.value(i, row));
    ranked_bytes_ += ranked.bytes();
    return ok_status();
  }

  bool before(const Ranked& a, const Ranked& b) const {
    for (size_t i = 0; i < a.by.size(); ++i) {
      const auto order = a.by[i].compare(b.by[i]);
      if (order != 0) return query_.groups.order_by[i].descending ? order > 0 : order < 0;
    }
    return false;
  }

  /// Drops groups that cannot be among the first ones, once there are many of them. kInvalidArgument: the others need
  /// too much memory.
  Status keep_first() {
    const size_t first = query_.limit == 0 ? ranked_.size() : std::min<uint64_t>(query_.limit, ranked_.size());
    const size_t others = ranked_.size() - first;
    if (others > first / 2 + kBlockRows || (others != 0 && ranked_bytes_ > max_ranked_bytes_)) {
      const auto end = ranked_.begin() + static_cast<ptrdiff_t>(first);
      std::nth_element(ranked_.begin(), end, ranked_.end(),
                       [this](const auto& a, const auto& b) { return before(a, b); });
      for (auto dropped = end; dropped != ranked_.end(); ++dropped) ranked_bytes_ -= dropped->bytes();
      ranked_.erase(end, ranked_.end());
    }
    if (ranked_bytes_ <= max_ranked_bytes_) return ok_status();
    return {StatusCode::kInvalidArgument, "query: the groups to sort take more than " +
                                              std::to_string(max_ranked_bytes_) +
                                              " bytes; give the query a smaller limit, or a condition on groups"};
  }

  /// Returns the groups that were kept, in their order.
  Status return_ranked() {
    std::ranges::stable_sort(ranked_, [this](const Ranked& a, const Ranked& b) { return before(a, b); });
    for (const Ranked& next : ranked_) {
      if (limit_reached()) break;
      builder_.append_row(next.row);
      ++passed_;
      LOAM_RETURN_IF_ERROR(send_if_full());
    }
    return ok_status();
  }

  Status send_if_full() { return ends_client_chunk(builder_) ? send() : ok_status(); }

  Status send() {
    Buffer bytes;
    bytes.reserve(builder_.bytes() + 8 * 3 * (result_->size() + 1));
    LOAM_RETURN_IF_ERROR(builder_.finish(bytes));
    LOAM_ASSIGN_OR_RETURN(std::shared_ptr<const Chunk> chunk, Chunk::adopt(std::move(bytes), result_));
    return sink_(std::move(chunk));
  }

  const Query query_;
  const Sink sink_;
  const size_t max_ranked_bytes_;
  const std::shared_ptr<const ResultSchema> partial_;
  const std::shared_ptr<const ResultSchema> result_;
  ChunkBuilder builder_;
  ChunkBuilder rows_;           // groups of which some will be returned
  GroupRuns runs_;              // groups that did not fit into memory
  std::vector<Ranked> ranked_;  // the first groups so far, if there is an order
  size_t ranked_bytes_ = 0;
  std::optional<GroupTable> groups_;
  std::optional<TopRows> top_;
  uint64_t passed_ = 0;
};

ResultMerger::ResultMerger(const Schema& schema, Query query, Sink sink, const Limits& limits)
    : impl_(std::make_unique<Impl>(schema, std::move(query), std::move(sink), limits)) {}
ResultMerger::~ResultMerger() = default;

const std::shared_ptr<const ResultSchema>& ResultMerger::partial_schema() const { return impl_->partial_schema(); }
const std::shared_ptr<const ResultSchema>& ResultMerger::result_schema() const { return impl_->result_schema(); }
Status ResultMerger::add(const std::shared_ptr<const Chunk>& partial) { return impl_->add(partial); }
bool ResultMerger::limit_reached() const { return impl_->limit_reached(); }
Status ResultMerger::finish() { return impl_->finish(); }

}  // namespace loam
