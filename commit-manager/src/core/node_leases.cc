#include "commit-manager/src/core/node_leases.h"

#include <algorithm>
#include <string>

namespace loam::commit {

NodeLeases::Node& NodeLeases::at(NodeId node) {
  if (nodes_.size() < node.value) nodes_.resize(node.value);
  return nodes_[node.value - 1];
}

void NodeLeases::extend(uint64_t ns, uint64_t now_ns) {
  for (Node& node : nodes_) node.last_heard_ns = std::min(now_ns, node.last_heard_ns + ns);
}

void NodeLeases::registered(NodeId id, bool new_start, uint64_t now_ns) {
  Node& node = at(id);
  // The process before this one may still run and serve until its lease ends.
  if (new_start && node.holds) node.earlier_until_ns = std::max(node.earlier_until_ns, until(node));
  if (node.restored && node.holds) node.restored_until_ns = until(node);
  node.last_heard_ns = now_ns;
  node.holds = true;
  node.restored = false;
  // Acknowledgements count for one connection only: a node that was cut off may resume a lease (R9, leases of storage
  // nodes).
  node.first_sent = node.last_sent = node.acknowledged = 0;
}

std::vector<NodeId> NodeLeases::expire(uint64_t now_ns) {
  std::vector<NodeId> over;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (!node.holds || now_ns < until(node)) continue;
    node.holds = false;
    over.emplace_back(i + 1);
  }
  return over;
}

void NodeLeases::fence_sent(NodeId id, uint64_t fence) {
  Node& node = at(id);
  if (node.first_sent == 0) node.first_sent = fence;
  node.last_sent = fence;
}

bool NodeLeases::fence_was_sent(NodeId id, uint64_t fence) const {
  if (id.value > nodes_.size()) return false;
  const Node& node = nodes_[id.value - 1];
  return node.first_sent != 0 && fence >= node.first_sent && fence <= node.last_sent;
}

Status NodeLeases::acknowledge(NodeId id, uint64_t fence) {
  if (!fence_was_sent(id, fence)) {
    return {StatusCode::kMalformed, "a storage node acknowledges fence " + std::to_string(fence) +
                                        ", of which it was never told on this connection"};
  }
  Node& node = at(id);
  node.acknowledged = std::max(node.acknowledged, fence);
  return ok_status();
}

bool NodeLeases::fenced(NodeId id, uint64_t fence, uint64_t now_ns) const {
  if (id.value > nodes_.size()) return true;
  const Node& node = nodes_[id.value - 1];
  return (node.acknowledged >= fence || !node.holds) && now_ns >= node.earlier_until_ns;
}

bool NodeLeases::fenced_everywhere(uint64_t fence, uint64_t now_ns) const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!fenced(NodeId(i + 1), fence, now_ns)) return false;
  }
  return true;
}

}  // namespace loam::commit
