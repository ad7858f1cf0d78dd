#include "tests/sim/tree_model.h"

#include <algorithm>
#include <mutex>

namespace loam::sim {
namespace {

/// Changes of a key that readers may still have to be judged by.
constexpr size_t kKeptChanges = 64;

std::string name(std::optional<TreeModel::Tag> tag) { return tag ? "tag " + std::to_string(*tag) : "nothing"; }

}  // namespace

void TreeModel::change_called(const std::string& key, std::optional<Tag> tag) {
  const std::lock_guard lock(verdict_.mutex());
  std::vector<Change>& changes = keys_[key];
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
      // Its own process alone writes the key: the answer must be true of what it has done before.
      const Change* const before = changes.size() > 1 ? &changes[changes.size() - 2] : nullptr;
      const bool known = before == nullptr || before->state == State::kDone;
      const bool was_there = before != nullptr && before->tag.has_value();
      if (judged() && known && was_there != (code == StatusCode::kAlreadyExists)) {
        verdict_.violate("tree-answer", "key " + key + " was said to be " + (was_there ? "absent" : "there") +
                                            " to its only writer, who knows better");
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

void TreeModel::judge(uint32_t reader, const std::string& key, std::optional<Tag> tag, Moment asked) {
  const auto known = keys_.find(key);
  if (known != keys_.end()) {
    for (auto change = known->second.rbegin(); change != known->second.rend(); ++change) {
      if (change->state != State::kRefused && change->tag == tag) return;
      // What had been done before the reader asked replaced everything older.
      if (change->state == State::kDone && change->ended < asked) break;
      if (std::next(change) == known->second.rend() && known->second.size() >= kKeptChanges / 2) return;  // forgotten
      if (std::next(change) == known->second.rend() && !tag) return;
    }
  } else if (!tag) {
    return;
  }
  const bool ever = tag && known != keys_.end() &&
                    std::ranges::any_of(known->second, [&](const Change& change) { return change.tag == tag; });
  verdict_.violate(tag ? "tree-phantom" : "tree-lost-key",
                   "process " + std::to_string(reader) + " saw " + name(tag) + " under key " + key +
                       (!tag   ? ", which was there all the while"
                        : ever ? ", which had been replaced or refused before it asked"
                               : ", which nobody has put there"));
}

void TreeModel::found(uint32_t reader, const std::string& key, std::optional<Tag> tag, Moment asked) {
  const std::lock_guard lock(verdict_.mutex());
  if (judged()) judge(reader, key, tag, asked);
}

void TreeModel::walked(uint32_t reader, std::string_view from, std::string_view to, std::span<const SeenEntry> entries,
                       Moment asked) {
  const std::lock_guard lock(verdict_.mutex());
  if (!judged()) return;
  auto entry = entries.begin();
  for (auto known = keys_.lower_bound(from); known != keys_.end() && (to.empty() || known->first < to); ++known) {
    for (; entry != entries.end() && entry->first < known->first; ++entry)
      judge(reader, entry->first, entry->second, asked);
    const bool there = entry != entries.end() && entry->first == known->first;
    judge(reader, known->first, there ? std::optional(entry->second) : std::nullopt, asked);
    if (there) ++entry;
  }
  for (; entry != entries.end(); ++entry) judge(reader, entry->first, entry->second, asked);
  const bool rising =
      std::ranges::adjacent_find(entries, std::ranges::greater_equal(), &SeenEntry::first) == entries.end();
  if (!rising)
    verdict_.violate("tree-order", "process " + std::to_string(reader) + " walked over keys that do not rise");
}

void TreeModel::checked(std::string_view wrong) {
  const std::lock_guard lock(verdict_.mutex());
  if (judged() && !wrong.empty()) verdict_.violate("tree-structure", wrong);
}

}  // namespace loam::sim
