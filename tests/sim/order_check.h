// Whether all begins and commits of a run fit into one order with everything that was seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/sim/transaction_model.h"

namespace loam::sim {

/// The complete test of strong snapshot isolation, once at the end of a run.
///
/// Each transaction has a point where its snapshot was taken and, if it is committed, one where it completed. Edges say
/// what lies before what: the events told (a snapshot is taken while begin runs, a commit completes after it was asked
/// for and before it was answered), what was seen (a completion lies before a snapshot that holds it; a snapshot lies
/// before the completion of the next version of a record that it read), and who wrote over whom (a completion lies
/// before the snapshot of the next writer of the record). The history is one of strong snapshot isolation, with the
/// order of versions that the ids give, if and only if there is no cycle.
///
/// Time: linear in events, reads and writes, but for one sort.
class OrderCheck {
 public:
  explicit OrderCheck(TransactionModel& model) : model_(model) {}
  /// Violates "long-fork" for a cycle of what was seen alone, "snapshot-order" for one that needs the events.
  void run();

 private:
  using Node = uint32_t;
  void add_events();
  void add_reads(const ModelTransaction& reader);
  void add_writes(const ModelTransaction& writer);
  void edge(Node before, Node after) { edges_[before].push_back(after); }
  Node at(Moment moment) const;
  Node snapshot(const ModelTransaction& transaction) const { return first_ + 2 * transaction.number; }
  Node completion(const ModelTransaction& transaction) const { return first_ + 2 * transaction.number + 1; }
  bool counts(const ModelTransaction& writer) const;
  /// The next certain writer of the record after this id; null if there is none, or it is excused.
  const ModelTransaction* next_writer(Place place, uint64_t id) const;
  const ModelTransaction* writer_seen(const ModelTransaction& reader, Place place, const Seen& seen) const;
  std::vector<Node> find_cycle() const;
  std::string describe(Node node) const;

  TransactionModel& model_;
  std::vector<Moment> moments_;  // ascending; their numbers are nodes
  Node first_ = 0;               // of the transactions' nodes
  std::vector<std::vector<Node>> edges_;
  /// Records with a removal that a power cut took back, and the last such cut: snapshots of before it may lack them.
  std::unordered_map<Place, Moment, PlaceHash> removed_until_;
};

}  // namespace loam::sim
