// Checks that one order of all begins and commits of a run agrees with everything that transactions saw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/sim/transaction_model.h"

namespace loam::sim {

/// The complete check of strong snapshot isolation. It runs once, at the end of a run.
///
/// The check builds a graph. Each transaction has one node for the moment at which its snapshot was taken and, if it
/// is committed, one for the moment at which it completed. An edge says that one node lies before another. There are
/// three kinds of edges:
/// * events: a snapshot is taken while begin runs; a commit completes after it was asked for and before it was
///   answered;
/// * reads: a completion lies before each snapshot that contains it; a snapshot lies before the completion of the
///   next version of each record that it read;
/// * writes: a completion lies before the snapshot of the next writer of the same record.
///
/// The history has strong snapshot isolation, with the order of versions that the ids give, if and only if the graph
/// has no cycle.
///
/// Time: linear in events, reads and writes, except for one sort.
class OrderCheck {
 public:
  explicit OrderCheck(TransactionModel& model) : model_(model) {}
  /// Reports "long-fork" for a cycle of edges from reads alone, "snapshot-order" for a cycle that needs events.
  void run();

 private:
  using Node = uint32_t;
  void add_events();
  void add_reads(const ModelTransaction& reader);
  void add_writes(const ModelTransaction& writer);
  void edge(Node before, Node after) { edges_[before].push_back(after); }
  Node at(LogicalTime moment) const;
  Node snapshot(const ModelTransaction& transaction) const { return first_ + 2 * transaction.number; }
  Node completion(const ModelTransaction& transaction) const { return first_ + 2 * transaction.number + 1; }
  bool counts(const ModelTransaction& writer) const;
  /// The next certain writer of the record after this id; null if there is none, or if a loss excuses the missing
  /// write.
  const ModelTransaction* next_writer(RecordId place, uint64_t id) const;
  const ModelTransaction* writer_seen(const ModelTransaction& reader, RecordId place, const ObservedRecord& seen) const;
  std::vector<Node> find_cycle() const;
  std::string describe(Node node) const;

  TransactionModel& model_;
  std::vector<LogicalTime> moments_;  // ascending; the index of a moment is its node number
  Node first_ = 0;                    // number of the first node of a transaction
  std::vector<std::vector<Node>> edges_;
  /// For each record with a removal that a power cut undid: the last such cut. Older snapshots may lack the record.
  std::unordered_map<RecordId, LogicalTime, RecordIdHash> removed_until_;
};

}  // namespace loam::sim
