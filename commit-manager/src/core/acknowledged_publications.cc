#include "commit-manager/src/core/acknowledged_publications.h"

#include <algorithm>

namespace loam::commit {

namespace {

/// Upper bound on the publications whose content is kept until the nodes acknowledge them. Acknowledgements of older
/// ones are ignored, which only delays truncation.
constexpr size_t kMaxSent = 256;

}  // namespace

void AcknowledgedPublications::add_sent(const Publication& publication) {
  sent_[publication.number] = std::make_shared<const Snapshot>(publication.later);
  if (sent_.size() > kMaxSent) sent_.erase(sent_.begin());
}

bool AcknowledgedPublications::acknowledge(NodeId node, uint64_t number, const std::map<NodeId, PeerId>& connected) {
  const auto sent = sent_.find(number);
  if (sent == sent_.end()) return false;
  Acknowledged& newest = acknowledged_[node];
  if (newest.number >= number) return true;
  newest = {number, sent->second};
  // Drop publications that all connected nodes have acknowledged or replaced by a newer one.
  uint64_t lowest = UINT64_MAX;
  for (const auto& [other, peer] : connected) {
    const auto at = acknowledged_.find(other);
    lowest = std::min(lowest, at == acknowledged_.end() ? 0 : at->second.number);
  }
  sent_.erase(sent_.begin(), sent_.lower_bound(lowest));
  return true;
}

bool AcknowledgedPublications::complete_at(NodeId node, TransactionId first, TransactionId last) const {
  const auto at = acknowledged_.find(node);
  if (at == acknowledged_.end()) return false;
  const Snapshot& complete = *at->second.complete;
  if (last.value > complete.high().value) return false;
  const auto open = std::ranges::lower_bound(complete.open(), Version(first.value));
  return open == complete.open().end() || open->value > last.value;
}

}  // namespace loam::commit
