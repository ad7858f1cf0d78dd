// ResultMerger forwards to one of three parts: GroupTable for aggregates, TopRows for a top-k, or pass() for a plain
// projection.
#include "common/schema/merge.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/schema/aggregate.h"
#include "common/schema/top_rows.h"

namespace loam {
namespace {

constexpr size_t kChunkBytes = 256 << 10;  // a chunk goes to the sink when it has reached this size

}  // namespace

class ResultMerger::Impl {
 public:
  Impl(const Schema& schema, Query query, Sink sink)
      : query_(std::move(query)),
        sink_(std::move(sink)),
        partial_(std::make_shared<const ResultSchema>(query_.partial_schema(schema))),
        result_(std::make_shared<const ResultSchema>(query_.result_schema(schema))),
        builder_(*result_) {
    if (query_.aggregating()) groups_.emplace(schema, query_);
    if (query_.top_k) top_.emplace(*query_.top_k);
  }

  Status add(const std::shared_ptr<const Chunk>& partial) {
    const ChunkView& view = partial->view();
    if (view.columns() != partial_->size()) {
      return {StatusCode::kInvalidArgument, "merge: the chunk is not of this query's partial schema"};
    }
    if (groups_) {
      for (size_t row = 0; row < view.rows(); ++row) LOAM_RETURN_IF_ERROR(groups_->merge(view, row));
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
    if (groups_) {
      for (size_t group = 0; group < groups_->groups(); ++group) {
        LOAM_RETURN_IF_ERROR(groups_->append_result(group, builder_));
        LOAM_RETURN_IF_ERROR(send_if_full());
      }
    }
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

  Status send_if_full() {
    return builder_.bytes() >= kChunkBytes || builder_.rows() == kMaxChunkRows ? send() : ok_status();
  }

  Status send() {
    Buffer bytes;
    bytes.reserve(builder_.bytes() + 8 * 3 * (result_->size() + 1));
    LOAM_RETURN_IF_ERROR(builder_.finish(bytes));
    LOAM_ASSIGN_OR_RETURN(std::shared_ptr<const Chunk> chunk, Chunk::adopt(std::move(bytes), result_));
    return sink_(std::move(chunk));
  }

  const Query query_;
  const Sink sink_;
  const std::shared_ptr<const ResultSchema> partial_;
  const std::shared_ptr<const ResultSchema> result_;
  ChunkBuilder builder_;
  std::optional<GroupTable> groups_;
  std::optional<TopRows> top_;
  uint64_t passed_ = 0;
};

ResultMerger::ResultMerger(const Schema& schema, Query query, Sink sink)
    : impl_(std::make_unique<Impl>(schema, std::move(query), std::move(sink))) {}
ResultMerger::~ResultMerger() = default;

const std::shared_ptr<const ResultSchema>& ResultMerger::partial_schema() const { return impl_->partial_schema(); }
const std::shared_ptr<const ResultSchema>& ResultMerger::result_schema() const { return impl_->result_schema(); }
Status ResultMerger::add(const std::shared_ptr<const Chunk>& partial) { return impl_->add(partial); }
bool ResultMerger::limit_reached() const { return impl_->limit_reached(); }
Status ResultMerger::finish() { return impl_->finish(); }

}  // namespace loam
