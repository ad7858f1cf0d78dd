// The evaluation of one block for all members of a walk: visible rows, interval indexes, then the other queries.
// filter.cc evaluates predicates, interval_index.cc adds up ranges.
#include "storage-node/src/scan/shared_evaluation.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "storage-node/src/scan/kernels.h"

namespace loam::storage {
namespace {

/// Upper bound on the queries of an interval index. Each has two bounds, so numbers of intervals fit 15 bits.
constexpr size_t kMaxQueriesForIndex = 8'192;

}  // namespace

SharedEvaluation::SharedEvaluation(std::shared_ptr<const Schema> schema) : values_(std::move(schema)) {}

void SharedEvaluation::assign(std::span<const Member> members) {
  if (!dirty_ && std::ranges::equal(members, members_)) return;
  flush();
  members_.assign(members.begin(), members.end());
  oldest_base_ = kOpen;
  for (const Member& member : members_) {
    const ScanSpec& spec = member.query->spec();
    const bool transactional = spec.kind == TableKind::kTransactional;
    oldest_base_ = std::min(oldest_base_, transactional ? spec.snapshot.base().value : kPending);
  }
  build();
}

size_t SharedEvaluation::view_of(const ScanQuery& query) {
  const ScanSpec& spec = query.spec();
  const auto same = [&](const View& view) {
    return view.kind == spec.kind && (spec.kind != TableKind::kTransactional || *view.snapshot == spec.snapshot);
  };
  const auto found = std::ranges::find_if(views_, same);
  if (found != views_.end()) return static_cast<size_t>(found - views_.begin());
  views_.push_back({spec.kind, &spec.snapshot});
  return views_.size() - 1;
}

void SharedEvaluation::build() {
  dirty_ = false;
  views_.clear();
  predicates_.clear();
  single_.clear();
  ranges_.clear();
  // Step 1: resolve view and predicates of each query, and group the queries that an index can answer by field.
  std::map<std::pair<uint16_t, std::vector<uint16_t>>, std::vector<Plan>> by_field;  // field and group columns
  for (const Member& member : members_) {
    Plan plan = {member, view_of(*member.query), predicates_.bind(member.query->selection())};
    // A query that begins in the middle of the page cannot use an index, which adds whole blocks.
    const auto range = member.from == nullptr ? member.query->range_query() : std::nullopt;
    const BlockGroups* const groups = member.query->bound().groups;
    auto columns = groups == nullptr ? std::vector<uint16_t>() : groups->columns();
    std::vector<Plan>& plans = range ? by_field[{range->range.field, std::move(columns)}] : single_;
    (plans.size() < kMaxQueriesForIndex ? plans : single_).push_back(std::move(plan));
  }
  // Step 2: make an index for each field with enough queries. The others are evaluated one by one.
  for (auto& [key, plans] : by_field) {
    const auto& [field, columns] = key;
    if (plans.size() < kMinQueriesForIndex && !Env::buggify("node.scan.small_index")) {
      std::ranges::move(plans, std::back_inserter(single_));
      continue;
    }
    Env::probe("node.scan.interval_index");
    RangeGroup& ranges = ranges_.emplace_back();
    BlockGroups* const groups = plans.front().member.query->bound().groups;
    ranges.index = std::make_unique<IntervalIndex>(values_, field, groups);
    ranges.grouped = groups != nullptr;
    const auto reads = [&](uint16_t column) {
      if (column < kFirstComputed || std::ranges::find(ranges.computed, column) != ranges.computed.end()) return;
      ranges.computed.push_back(column);
    };
    reads(field);
    std::ranges::for_each(columns, reads);
    for (const Plan& plan : plans) {
      const RangeQuery range = *plan.member.query->range_query();
      ranges.index->add(range);
      for (const Aggregate& aggregate : range.aggregates) {
        if (aggregate.op != AggregateOp::kCountAll) reads(aggregate.field);
      }
      if (std::ranges::find(ranges.views, plan.view) == ranges.views.end()) ranges.views.push_back(plan.view);
    }
    ranges.index->build();
    ranges.plans = std::move(plans);
  }
}

void SharedEvaluation::flush() {
  for (RangeGroup& ranges : ranges_) ranges.index->flush();
}

void SharedEvaluation::remove_query(const ScanQuery* query) {
  std::erase_if(members_, [query](const Member& member) { return member.query == query; });
  // Views, plans and indexes may refer to the query, even if it has left the walk: drop them all. Flush first, because
  // the indexes hold results of other queries.
  flush();
  ranges_.clear();
  single_.clear();
  views_.clear();
  predicates_.clear();  // its columns may get other meanings
  dirty_ = true;
  values_.release(query->bound());
}

// Three classes of rows: a version up to the base is visible by its valid-from, and one up to `high` may be. A version
// with a valid-to up to the base has ended; between base and high the snapshot's open ids decide.
void SharedEvaluation::compute_visible_rows(View& view, const Block& block) const {
  if (view.kind != TableKind::kTransactional) {
    view.rows = values_.all() - kernels().at_most(block.valid_to(), kPending);
    return;
  }
  const Snapshot& snapshot = *view.snapshot;
  const uint64_t base = snapshot.base().value, high = snapshot.high().value;
  const RowMask ended = kernels().at_most(block.valid_to(), base);
  view.rows = values_.all() & kernels().at_most(block.valid_from(), base);
  if (base == high) {
    view.rows -= ended;
    return;
  }
  view.rows -= kernels().at_most(block.valid_to(), high);  // these rows are visible without a look at the open ids
  const RowMask unsure = (values_.all() & kernels().at_most(block.valid_from(), high)) - ended - view.rows;
  view.rows |= unsure.filter([&](size_t row) {
    return snapshot.visible(Version(block.valid_from(row))) && !snapshot.visible(Version(block.valid_to(row)));
  });
}

void SharedEvaluation::compute_visibility(const Block& block) {
  for (View& view : views_) {
    // For most blocks the bounds of the block decide, without a look at single rows.
    const bool all = block.all_visible()                      ? true
                     : view.kind == TableKind::kTransactional ? block.max_from() <= view.snapshot->base().value &&
                                                                    block.min_to() > view.snapshot->high().value
                                                              : block.min_to() != kPending;
    if (all) {
      view.rows = values_.all();
    } else {
      compute_visible_rows(view, block);
    }
  }
}

bool SharedEvaluation::evaluate_plan(const Plan& plan, RowMask rows, uint64_t number, const Entry* next) {
  ScanQuery& query = *plan.member.query;
  auto [selected, failed] = predicates_.matching(plan.selection, values_, rows);
  if (query.filters_keys()) {
    const auto returned = [&](size_t row) { return query.returns(Key(values_.block().entry(row).key)); };
    selected = selected.filter(returned);
    failed = failed.filter(returned);
  }
  RowMask errors = failed;
  if (selected.any()) errors |= selected & query.failed(values_);
  if (!errors.any()) return query.consume(number, values_, selected, next);
  // The query ends at its first error, unless the rows before it suffice. If their chunk cannot leave yet, the query
  // continues with this row.
  const size_t first = errors.front();
  const Status status =
      failed.test(first) ? predicates_.error(plan.selection, values_, first) : query.error(values_, first);
  const Entry* const at = &values_.block().entry(first);
  if (query.consume(number, values_, selected & RowMask::first(first), at)) query.end(status);
  return false;
}

void SharedEvaluation::evaluate_ranges(RangeGroup& ranges, uint64_t number, const Entry* next,
                                       std::vector<ScanQuery*>& left, bool& rebuild) {
  // The index takes the rows that all its queries see, and whose values are no errors. The others are evaluated query
  // by query.
  RowMask common = views_[ranges.views.front()].rows;
  for (const size_t view : ranges.views) common &= views_[view].rows;
  for (const uint16_t column : ranges.computed) common -= values_.failed(column);
  const auto contested = [&] {
    return std::ranges::any_of(ranges.views, [&](size_t view) { return views_[view].rows != common; });
  };
  // A query with groups may have to wait in the middle of a contested block, and then reads its rows again.
  const bool indexes = common.any() && !(ranges.grouped && contested());
  if (!indexes || !ranges.index->add_rows(values_, common)) common = {};
  if (!contested()) return;
  Env::probe("node.scan.contested_rows");
  for (const Plan& plan : ranges.plans) {
    const RowMask rows = views_[plan.view].rows - common;
    if (!rows.any() || evaluate_plan(plan, rows, number, next)) continue;
    LOAM_CHECK(plan.member.query->ended() || ranges.grouped,
               "a query of an interval index without groups needs no memory, and has no chunk, before its end");
    left.push_back(plan.member.query);
    // The index counts for all its queries, so it is built anew without one that waits.
    rebuild = rebuild || !plan.member.query->ended();
  }
}

void SharedEvaluation::evaluate(const Block& block, uint64_t number, const Entry* next, std::vector<ScanQuery*>& left) {
  if (dirty_) build();
  values_.reset(block);
  predicates_.begin_block();
  compute_visibility(block);
  // Queries of an index stay to the end of the page: they have no chunk that could fill. One that ends by an error
  // stays in the index, too, and its rows are not read any more.
  bool rebuild = false;
  for (RangeGroup& ranges : ranges_) evaluate_ranges(ranges, number, next, left, rebuild);
  size_t gone = left.size();
  for (const Plan& plan : single_) {
    RowMask rows = views_[plan.view].rows;
    // A query that continues in the page ignores the rows before its place.
    if (const Entry* const from = plan.member.from) {
      if (next <= from) {
        plan.member.query->exclude_entries(block.entries_read());
        continue;
      }
      rows = rows.filter([&](size_t row) { return &block.entry(row) >= from; });
    }
    if (evaluate_plan(plan, rows, number, next)) continue;
    left.push_back(plan.member.query);
    ++gone;
  }
  if (gone == 0) return;
  const auto has_left = [&](const ScanQuery* query) { return std::ranges::find(left, query) != left.end(); };
  const auto plan_left = [&](const Plan& plan) { return has_left(plan.member.query); };
  std::erase_if(single_, plan_left);
  for (RangeGroup& ranges : ranges_) std::erase_if(ranges.plans, plan_left);
  std::erase_if(members_, [&](const Member& member) { return has_left(member.query); });
  if (!rebuild) return;
  flush();
  dirty_ = true;
}

}  // namespace loam::storage
