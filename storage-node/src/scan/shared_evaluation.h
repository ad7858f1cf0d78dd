// What the queries that read a page together have in common, evaluated once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/schema/schema.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/catalog.h"
#include "storage-node/src/scan/block.h"
#include "storage-node/src/scan/block_values.h"
#include "storage-node/src/scan/filter.h"
#include "storage-node/src/scan/interval_index.h"
#include "storage-node/src/scan/scan_query.h"

namespace loam::storage {

/// Role: evaluates blocks for a set of queries. Owner: a scan pass; one thread.
///
/// Three things are shared: which rows a snapshot sees, for all queries with equal snapshots; the predicates
/// (PredicateSet); and range aggregates over one field (IntervalIndex), if enough queries ask for them. What is left to
/// each query is to combine row sets by words, and to take the rows that it selects.
///
/// Queries of an index may have different snapshots: rows that all of them see go through the index; rows that only
/// some see are evaluated for those as if there were no index.
class SharedEvaluation {
 public:
  /// An index takes as long as so many range sums one by one (loam-bench scan).
  static constexpr size_t kLeastForIndex = 4;

  explicit SharedEvaluation(std::shared_ptr<const Schema> schema);

  /// A query, and where it begins in the page at hand if that is behind the others' place; else null.
  struct Member {
    ScanQuery* query = nullptr;
    const Entry* from = nullptr;

    bool operator==(const Member&) const = default;
  };

  /// These queries from now on. Does nothing if they are those it has; otherwise flushes first.
  void assign(std::span<const Member> members);
  /// No query sees versions that had ended by this one.
  uint64_t ended_by() const { return ended_by_; }
  /// Evaluates a block of page `number` for all; `next` is the entry behind it. Queries that take no more rows
  /// (blocked, satisfied, ended) leave; they are appended to `left`.
  void evaluate(const Block& block, uint64_t number, const Entry* next, std::vector<ScanQuery*>& left);
  /// Gives each query what the indexes have counted for it.
  void flush();
  /// The query is about to end, or has ended: it is not touched any more.
  void forget(const ScanQuery* query);

 private:
  struct View {
    TableKind kind{};
    const Snapshot* snapshot = nullptr;
    RowMask rows{};  // of the block at hand
  };
  struct Plan {
    Member member;
    size_t view = 0;
    PredicateSet::Bound selection;
  };
  struct Ranges {
    std::unique_ptr<IntervalIndex> index;
    std::vector<Plan> plans;    // its queries, by view
    std::vector<size_t> views;  // different ones
  };

  void build();
  size_t view_of(const ScanQuery& query);
  void look(const Block& block);
  void look_at(View& view, const Block& block) const;
  void take_ranges(Ranges& ranges, uint64_t number, const Entry* next);
  bool take(const Plan& plan, RowMask rows, uint64_t number, const Entry* next);

  BlockValues values_;
  std::vector<Member> members_;
  uint64_t ended_by_ = kPending;
  bool dirty_ = false;  // the members below are not those of members_
  std::vector<View> views_;
  PredicateSet predicates_;
  std::vector<Plan> single_;  // evaluated one by one
  std::vector<Ranges> ranges_;
};

}  // namespace loam::storage
