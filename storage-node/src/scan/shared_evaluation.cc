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

/// Two bounds each: their intervals have numbers of 15 bits.
constexpr size_t kMostForIndex = 8'192;

}  // namespace

SharedEvaluation::SharedEvaluation(std::shared_ptr<const Schema> schema) : values_(std::move(schema)) {}

void SharedEvaluation::assign(std::span<const Member> members) {
  if (!dirty_ && std::ranges::equal(members, members_)) return;
  flush();
  members_.assign(members.begin(), members.end());
  ended_by_ = kOpen;
  for (const Member& member : members_) {
    const ScanSpec& spec = member.query->spec();
    const bool transactional = spec.kind == TableKind::kTransactional;
    ended_by_ = std::min(ended_by_, transactional ? spec.snapshot.base().value : kPending);
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
  std::map<uint16_t, std::vector<Plan>> by_field;
  for (const Member& member : members_) {
    Plan plan = {member, view_of(*member.query), predicates_.bind(member.query->selection())};
    const auto range = member.from == nullptr ? member.query->range_query() : std::nullopt;
    std::vector<Plan>& plans = range ? by_field[range->range.field] : single_;
    (plans.size() < kMostForIndex ? plans : single_).push_back(std::move(plan));
  }
  for (auto& [field, plans] : by_field) {
    if (plans.size() < kLeastForIndex && !Env::rare("node.scan.small_index")) {
      std::ranges::move(plans, std::back_inserter(single_));
      continue;
    }
    Env::probe("node.scan.interval_index");
    Ranges& ranges = ranges_.emplace_back();
    ranges.index = std::make_unique<IntervalIndex>(values_.schema(), field);
    for (const Plan& plan : plans) {
      ranges.index->add(*plan.member.query->range_query());
      if (std::ranges::find(ranges.views, plan.view) == ranges.views.end()) ranges.views.push_back(plan.view);
    }
    ranges.index->build();
    ranges.plans = std::move(plans);
  }
}

void SharedEvaluation::flush() {
  for (Ranges& ranges : ranges_) ranges.index->flush();
}

void SharedEvaluation::forget(const ScanQuery* query) {
  std::erase_if(members_, [query](const Member& member) { return member.query == query; });
  // Everything that was built may refer to it, even if it has left. The indexes count for all of their queries at once,
  // so the others get what is theirs first.
  flush();
  ranges_.clear();
  single_.clear();
  views_.clear();
  dirty_ = true;
}

/// Which rows the view sees, where it is not all of them.
void SharedEvaluation::look_at(View& view, const Block& block) const {
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
  view.rows -= kernels().at_most(block.valid_to(), high);  // surely seen
  const RowMask unsure = (values_.all() & kernels().at_most(block.valid_from(), high)) - ended - view.rows;
  view.rows |= unsure.filter([&](size_t row) {
    return snapshot.visible(Version(block.valid_from(row))) && !snapshot.visible(Version(block.valid_to(row)));
  });
}

void SharedEvaluation::look(const Block& block) {
  for (View& view : views_) {
    const bool all = block.all_visible()                      ? true
                     : view.kind == TableKind::kTransactional ? block.max_from() <= view.snapshot->base().value &&
                                                                    block.min_to() > view.snapshot->high().value
                                                              : block.min_to() != kPending;
    if (all) {
      view.rows = values_.all();
    } else {
      look_at(view, block);
    }
  }
}

bool SharedEvaluation::take(const Plan& plan, RowMask rows, uint64_t number, const Entry* next) {
  ScanQuery& query = *plan.member.query;
  rows = predicates_.matching(plan.selection, values_, rows);
  if (const auto& owns = query.spec().owns) {
    rows = rows.filter([&](size_t row) { return owns(Key(values_.block().entry(row).key)); });
  }
  return query.take(number, values_, rows, next);
}

void SharedEvaluation::take_ranges(Ranges& ranges, uint64_t number, const Entry* next) {
  RowMask common = views_[ranges.views.front()].rows;
  for (const size_t view : ranges.views) common &= views_[view].rows;
  if (common.any()) ranges.index->take(values_, common);
  bool contested = false;
  for (const size_t view : ranges.views) contested |= views_[view].rows != common;
  if (!contested) return;
  Env::probe("node.scan.contested_rows");
  for (const Plan& plan : ranges.plans) {
    const RowMask rows = views_[plan.view].rows - common;
    if (!rows.any()) continue;
    const bool took = take(plan, rows, number, next);
    LOAM_CHECK(took, "a query that an interval index counts for needs no memory, and has no chunk, before its end");
  }
}

void SharedEvaluation::evaluate(const Block& block, uint64_t number, const Entry* next, std::vector<ScanQuery*>& left) {
  if (dirty_) build();
  values_.reset(block);
  predicates_.begin_block();
  look(block);
  for (Ranges& ranges : ranges_) take_ranges(ranges, number, next);
  size_t gone = 0;
  for (const Plan& plan : single_) {
    RowMask rows = views_[plan.view].rows;
    if (const Entry* const from = plan.member.from) {
      if (next <= from) {
        plan.member.query->not_mine(block.looked_at());
        continue;
      }
      rows = rows.filter([&](size_t row) { return &block.entry(row) >= from; });
    }
    if (take(plan, rows, number, next)) continue;
    left.push_back(plan.member.query);
    ++gone;
  }
  if (gone == 0) return;
  const auto has_left = [&](const ScanQuery* query) { return std::ranges::find(left, query) != left.end(); };
  std::erase_if(single_, [&](const Plan& plan) { return has_left(plan.member.query); });
  std::erase_if(members_, [&](const Member& member) { return has_left(member.query); });
}

}  // namespace loam::storage
