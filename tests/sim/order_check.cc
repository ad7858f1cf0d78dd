// The final check. It builds the graph of order_check.h and looks for a cycle.
#include "tests/sim/order_check.h"

#include <algorithm>

namespace loam::sim {
namespace {

/// Largest number of nodes of a cycle that a message shows.
constexpr size_t kShownNodes = 16;

}  // namespace

void OrderCheck::run() {
  // Step 1: the nodes and the edges of events.
  add_events();
  // Step 2: remembers the removals that a power cut has undone.
  for (const ModelTransaction& transaction : model_.transactions_) {
    if (transaction.commit_lost == kNever) continue;
    for (const Write& write : transaction.writes) {
      if (!write.leaves_record()) removed_until_[write.place] = transaction.commit_lost;
    }
  }
  // Step 3: the edges of reads and writes.
  for (const ModelTransaction& transaction : model_.transactions_) {
    if (!transaction.begun) continue;
    add_reads(transaction);
    if (counts(transaction)) add_writes(transaction);
  }
  // Step 4: a cycle is a violation. It needs the order of events if one of its nodes is an event.
  const std::vector<Node> cycle = find_cycle();
  if (cycle.empty()) return;
  const bool events = std::any_of(cycle.begin(), cycle.end(), [this](Node node) { return node < first_; });
  std::string text = events ? "reads contradict the order of events:" : "two snapshots contradict each other:";
  for (size_t i = 0; i < cycle.size() && i < kShownNodes; ++i)
    text += (i == 0 ? " " : ", before ") + describe(cycle[i]);
  model_.violate(events ? "snapshot-order" : "long-fork", text);
}

bool OrderCheck::counts(const ModelTransaction& writer) const {
  return writer.certain() && writer.may_be_visible() && !writer.writes.empty() && writer.commit_lost == kNever;
}

void OrderCheck::add_events() {
  for (const ModelTransaction& transaction : model_.transactions_) {
    if (!transaction.begun) continue;
    moments_.push_back(transaction.requested);
    moments_.push_back(transaction.answered);
    if (!counts(transaction)) continue;
    moments_.push_back(transaction.commit_requested);
    if (transaction.outcome == Outcome::kCommitted) moments_.push_back(transaction.ended);
  }
  // The moments become a chain, in which each moment lies before the next. Edges between all pairs would be
  // quadratic.
  std::sort(moments_.begin(), moments_.end());
  moments_.erase(std::unique(moments_.begin(), moments_.end()), moments_.end());
  first_ = static_cast<Node>(moments_.size());
  edges_.resize(moments_.size() + 2 * model_.transactions_.size());
  for (Node node = 0; node + 1 < first_; ++node) edge(node, node + 1);
  for (const ModelTransaction& transaction : model_.transactions_) {
    if (!transaction.begun) continue;
    edge(at(transaction.requested), snapshot(transaction));
    edge(snapshot(transaction), at(transaction.answered));
    if (!counts(transaction)) continue;
    edge(at(transaction.commit_requested), completion(transaction));
    if (transaction.outcome == Outcome::kCommitted) edge(completion(transaction), at(transaction.ended));
  }
}

OrderCheck::Node OrderCheck::at(LogicalTime moment) const {
  return static_cast<Node>(std::lower_bound(moments_.begin(), moments_.end(), moment) - moments_.begin());
}

const ModelTransaction* OrderCheck::next_writer(RecordId place, uint64_t id) const {
  const auto chain = model_.chains_.find(place);
  if (chain == model_.chains_.end()) return nullptr;
  for (auto entry = chain->second.upper_bound(id); entry != chain->second.end(); ++entry) {
    const ModelTransaction& writer = model_.at(entry->second);
    if (!counts(writer)) continue;
    return model_.excused(writer, place) ? nullptr : &writer;
  }
  return nullptr;
}

const ModelTransaction* OrderCheck::writer_seen(const ModelTransaction& reader, RecordId place,
                                                const ObservedRecord& seen) const {
  if (seen.present()) {
    const auto writer = model_.by_id_.find(seen.version);
    return writer == model_.by_id_.end() ? nullptr : &model_.at(writer->second);
  }
  // The reader found no record. It has seen a certain removal only if there is exactly one that it can have seen, of
  // a record that existed for the reader, and not of one that may have been lost, inserted again and removed after
  // the snapshot.
  const auto [remover, count] = model_.removals(reader, place, 0);
  if (remover == nullptr) return nullptr;
  const auto& chain = model_.chains_.at(place);
  for (auto entry = chain.begin(); entry != chain.end() && entry->first < remover->id.value; ++entry) {
    const ModelTransaction& writer = model_.at(entry->second);
    if (writer.visible_by < reader.requested && writer.write_of(place)->leaves_record() &&
        !model_.excused(writer, place)) {
      return remover;
    }
  }
  return nullptr;
}

void OrderCheck::add_reads(const ModelTransaction& reader) {
  for (const auto& [place, seen] : reader.reads) {
    const ModelTransaction* writer = writer_seen(reader, place, seen);
    if (writer != nullptr && counts(*writer) && !model_.excused(*writer, place)) {
      edge(completion(*writer), snapshot(reader));
    }
    if (writer == nullptr && (seen.present() || model_.removals(reader, place, 0).second != 0)) continue;
    if (const auto removed = removed_until_.find(place);
        !seen.present() && removed != removed_until_.end() && reader.requested < removed->second) {
      continue;  // it may have seen the removal
    }
    const ModelTransaction* next = next_writer(place, writer == nullptr ? 0 : writer->id.value);
    if (next != nullptr && next != &reader && !model_.losses_.lost_between(place, 0, model_.verdict_.last())) {
      edge(snapshot(reader), completion(*next));
    }
  }
}

void OrderCheck::add_writes(const ModelTransaction& writer) {
  edge(snapshot(writer), completion(writer));
  for (const Write& write : writer.writes) {
    if (model_.excused(writer, write.place)) continue;
    const ModelTransaction* next = next_writer(write.place, writer.id.value);
    if (next != nullptr) edge(completion(writer), snapshot(*next));
  }
}

std::vector<OrderCheck::Node> OrderCheck::find_cycle() const {
  // A topological sort by the number of predecessors. The nodes that it cannot order lie on a cycle or behind one.
  std::vector<uint32_t> before(edges_.size(), 0);
  for (const auto& targets : edges_) {
    for (const Node target : targets) ++before[target];
  }
  std::vector<Node> ready;
  for (Node node = 0; node < edges_.size(); ++node) {
    if (before[node] == 0) ready.push_back(node);
  }
  size_t ordered = 0;
  while (!ready.empty()) {
    const Node node = ready.back();
    ready.pop_back();
    ++ordered;
    for (const Node target : edges_[node]) {
      if (--before[target] == 0) ready.push_back(target);
    }
  }
  if (ordered == edges_.size()) return {};
  // Each remaining node has a predecessor that remains, so a walk backwards must reach a node twice.
  std::vector<Node> previous(edges_.size(), UINT32_MAX);
  Node start = UINT32_MAX;
  for (Node node = 0; node < edges_.size(); ++node) {
    if (before[node] == 0) continue;
    for (const Node target : edges_[node]) {
      if (before[target] != 0) previous[target] = node, start = target;
    }
  }
  std::vector<bool> met(edges_.size(), false);
  Node node = start;
  for (; !met[node]; node = previous[node]) met[node] = true;
  std::vector<Node> cycle;
  const Node end = node;
  do {
    cycle.push_back(node);
    node = previous[node];
  } while (node != end);
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}

std::string OrderCheck::describe(Node node) const {
  if (node < first_) return "event " + std::to_string(moments_[node]);
  const ModelTransaction& transaction = model_.transactions_[(node - first_) / 2];
  return ((node - first_) % 2 == 0 ? "the snapshot of " : "the completion of ") + model_.name(transaction);
}

}  // namespace loam::sim
