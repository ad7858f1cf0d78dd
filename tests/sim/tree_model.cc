// The model of a shared Bd-tree. A key has one writer, so its states form a list, and a read may return each state
// that can have existed while it ran.
#include "tests/sim/tree_model.h"

#include <algorithm>
#include <mutex>

namespace loam::sim {
namespace {

/// Largest number of a key's changes that the model keeps for the check of reads.
constexpr size_t kKeptChanges = 64;

std::string name(std::optional<TreeModel::Tag> tag) { return tag ? "tag " + std::to_string(*tag) : "nothing"; }

}  // namespace

void TreeModel::change_called(const std::string& key, std::optional<Tag> tag) {
  const std::lock_guard lock(verdict_.mutex());
  std::vector<Change>& changes = keys_[key];
  // Drops the older half. A read is not judged if it may have seen a state that was dropped.
  if (changes.size() == kKeptChanges) changes.erase(changes.begin(), changes.begin() + kKeptChanges / 2);
  changes.push_back({tag, verdict_.next(), kNever, State::kCalled});
}

void TreeModel::change_returned(const std::string& key, StatusCode code) {
  const std::lock_guard lock(verdict_.mutex());
  std::vector<Change>& changes = keys_[key];
  Change& change = changes.back();
  change.ended = verdict_.next();
  switch (code) {
    case StatusCode::kOk:
      change.state = State::kDone;
      ++acknowledged_;
      return;
    case StatusCode::kConflict:
      change.state = State::kRefused;
      return;
    case StatusCode::kAlreadyExists:
    case StatusCode::kNotFound: {
      change.state = State::kRefused;
      // Only this process writes the key, so the result must agree with its previous changes.
      const Change* const before = changes.size() > 1 ? &changes[changes.size() - 2] : nullptr;
      const bool known = before == nullptr || before->state == State::kDone;
      const bool was_there = before != nullptr && before->tag.has_value();
      if (checks_enabled() && known && was_there != (code == StatusCode::kAlreadyExists)) {
        verdict_.violate("tree-answer", "key " + key + " was reported as " + (was_there ? "absent" : "present") +
                                            " to its only writer, against its own changes");
      }
      return;
    }
    default:
      change.state = State::kUnknown;
  }
}

std::optional<bool> TreeModel::there(const std::string& key) const {
  const std::lock_guard lock(verdict_.mutex());
  const auto found = keys_.find(key);
  if (found == keys_.end()) return false;
  for (auto change = found->second.rbegin(); change != found->second.rend(); ++change) {
    if (change->state == State::kDone) return change->tag.has_value();
    if (change->state != State::kRefused) return std::nullopt;
  }
  return found->second.size() < kKeptChanges / 2 ? std::optional(false) : std::nullopt;
}

void TreeModel::check_find(uint32_t reader, const std::string& key, std::optional<Tag> tag, LogicalTime requested_at) {
  const auto known = keys_.find(key);
  if (known != keys_.end()) {
    for (auto change = known->second.rbegin(); change != known->second.rend(); ++change) {
      if (change->state != State::kRefused && change->tag == tag) return;
      // A change that ended before the read was requested replaced everything older.
      if (change->state == State::kDone && change->ended < requested_at) break;
      // The model has dropped the older changes and cannot judge them.
      if (std::next(change) == known->second.rend() && known->second.size() >= kKeptChanges / 2) return;
      // Before its first change the key was absent.
      if (std::next(change) == known->second.rend() && !tag) return;
    }
  } else if (!tag) {
    return;
  }
  const bool ever = tag && known != keys_.end() &&
                    std::ranges::any_of(known->second, [&](const Change& change) { return change.tag == tag; });
  verdict_.violate(tag ? "tree-phantom" : "tree-lost-key",
                   "process " + std::to_string(reader) + " saw " + name(tag) + " under key " + key +
                       (!tag   ? ", which was in the tree during the whole read"
                        : ever ? ", which had been replaced or refused before the read"
                               : ", which no process inserted there"));
}

void TreeModel::found(uint32_t reader, const std::string& key, std::optional<Tag> tag, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  if (checks_enabled()) check_find(reader, key, tag, requested_at);
}

void TreeModel::walked(uint32_t reader, std::string_view from, std::string_view to, std::span<const SeenEntry> entries,
                       LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  if (!checks_enabled()) return;
  auto entry = entries.begin();
  for (auto known = keys_.lower_bound(from); known != keys_.end() && (to.empty() || known->first < to); ++known) {
    for (; entry != entries.end() && entry->first < known->first; ++entry)
      check_find(reader, entry->first, entry->second, requested_at);
    const bool there = entry != entries.end() && entry->first == known->first;
    check_find(reader, known->first, there ? std::optional(entry->second) : std::nullopt, requested_at);
    if (there) ++entry;
  }
  for (; entry != entries.end(); ++entry) check_find(reader, entry->first, entry->second, requested_at);
  const bool rising =
      std::ranges::adjacent_find(entries, std::ranges::greater_equal(), &SeenEntry::first) == entries.end();
  if (!rising)
    verdict_.violate("tree-order", "process " + std::to_string(reader) + " walked over keys that are not ascending");
}

void TreeModel::checked(std::string_view wrong) {
  const std::lock_guard lock(verdict_.mutex());
  if (checks_enabled() && !wrong.empty()) verdict_.violate("tree-structure", wrong);
}

}  // namespace loam::sim
