// Checks of a commit manager's history against what a storage node knows (R10, cluster identity and incarnations).

#include "common/wire/identity.h"

#include <algorithm>
#include <string_view>

namespace loam::wire {

namespace {

constexpr std::string_view kHexadecimal = "0123456789abcdef";

Status wrong(const std::string& why) {
  return {StatusCode::kWrongCluster,
          why + "; start the commit manager on the newest state of its folder, or give the right address"};
}

Status malformed(const std::string& why) { return {StatusCode::kMalformed, "the history of a commit manager " + why}; }

}  // namespace

std::string to_string(const ClusterId& cluster) {
  std::string text;
  text.reserve(32);
  for (const uint64_t half : {cluster.high, cluster.low}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += kHexadecimal[(half >> shift) & 15];
  }
  return text;
}

Status ClusterHistory::validate() const {
  if (!cluster) return malformed("names no cluster");
  if (epochs.empty() || epochs.size() > kMaxEpochs) {
    return malformed("has " + std::to_string(epochs.size()) + " epochs, not 1 to " + std::to_string(kMaxEpochs));
  }
  // Numbers and first states ascend. The present epoch may not have stored its first state yet, so the number of this
  // state may be one above `state`.
  const auto falls = [](const EpochRecord& a, const EpochRecord& b) {
    return a.number >= b.number || a.first_state >= b.first_state;
  };
  if (epochs.front().number == 0 || epochs.front().first_state == 0 ||
      std::ranges::adjacent_find(epochs, falls) != epochs.end() || epochs.back().first_state - 1 > state) {
    return malformed("has epochs that do not ascend");
  }
  return ok_status();
}

Status ClusterHistory::contains(const HistoryPoint& known) const {
  // A storage node that has never registered fits every history.
  if (!known.cluster) return ok_status();
  if (known.cluster != cluster) {
    return wrong("the commit manager is of cluster " + to_string(cluster) + ", the storage node of cluster " +
                 to_string(known.cluster));
  }
  const std::string known_text = "the storage node was told epoch " + std::to_string(known.epoch) + " of its cluster";
  if (known.epoch > epochs.back().number) {
    return wrong(known_text + ", and the commit manager is only at epoch " + std::to_string(epochs.back().number) +
                 ": its state is not the newest of the cluster");
  }
  const auto at = std::ranges::find(epochs, known.epoch, &EpochRecord::number);
  if (at == epochs.end()) {
    return wrong(known_text + ", which is not among the " + std::to_string(epochs.size()) +
                 " epochs that the commit manager remembers");
  }
  // Two starts from copies of one state have the same number. Only their random numbers differ.
  if (at->random != known.random) {
    return wrong(known_text + " by another start of the commit manager than epoch " + std::to_string(known.epoch) +
                 " in the stored state of this one: both have continued from copies of one state");
  }
  // An earlier epoch ends with the state before the first one of the next epoch. A later state of that epoch is one
  // that this commit manager does not have.
  const bool present = at + 1 == epochs.end();
  const uint64_t last = present ? state : (at + 1)->first_state - 1;
  if (known.state > last) {
    return wrong(known_text + " with state " + std::to_string(known.state) + ", and the commit manager " +
                 (present ? "has stored " : "continued from ") + "state " + std::to_string(last) +
                 ": its state is not the newest of the cluster");
  }
  // Both numbers count flushed commits only, so a restart loses none of them. A smaller number means an older copy.
  if (known.log > log) {
    return wrong(known_text + " with " + std::to_string(known.log) +
                 " commits, and the commit log of the commit manager ends "
                 "after " +
                 std::to_string(log) + ": it is not the newest of the cluster");
  }
  return ok_status();
}

}  // namespace loam::wire
