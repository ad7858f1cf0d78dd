// The oracle's model of a Bd-tree that clients share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "tests/sim/losses.h"
#include "tests/sim/verdict.h"

namespace loam::sim {

/// The model of the tree. Every key has one writing process, which makes one change at a time. A reader may see every
/// state of the key that may have existed while it read. Keys of all processes lie in the same leaves.
///
/// After the loss of a node the model judges nothing, because the node took nodes of the tree with it.
///
/// Owner: the Oracle. Threads: every public function holds the verdict's lock.
class TreeModel {
 public:
  using Tag = uint64_t;
  using SeenEntry = std::pair<std::string, Tag>;

  TreeModel(Verdict& verdict, const Losses& losses) : verdict_(verdict), losses_(losses) {}

  /// The key's process is about to insert the key (`tag`, unique in the run) or to erase it (empty).
  void change_called(const std::string& key, std::optional<Tag> tag);
  void change_returned(const std::string& key, StatusCode code);
  /// A find returned the entry's tag, or no entry. `requested_at`: Oracle::now() before the call.
  void found(uint32_t reader, const std::string& key, std::optional<Tag> tag, LogicalTime requested_at);
  /// A walk returned all keys from `from` (inclusive) to `to` (exclusive; empty: no bound).
  void walked(uint32_t reader, std::string_view from, std::string_view to, std::span<const SeenEntry> entries,
              LogicalTime requested_at);
  /// The tree has checked its own structure while no client worked. `wrong`: the error that it found; empty: none.
  void checked(std::string_view wrong);

  /// Whether the key's process knows that the key is in the tree; empty: it cannot know.
  std::optional<bool> there(const std::string& key) const;
  uint64_t changes() const { return acknowledged_; }
  bool checks_enabled() const { return !losses_.any(); }

 private:
  enum class State : uint8_t { kCalled, kDone, kRefused, kUnknown };
  struct Change {
    std::optional<Tag> tag;
    LogicalTime called = 0;
    LogicalTime ended = kNever;
    State state = State::kCalled;
  };
  void check_find(uint32_t reader, const std::string& key, std::optional<Tag> tag, LogicalTime requested_at);

  Verdict& verdict_;
  const Losses& losses_;
  std::map<std::string, std::vector<Change>, std::less<>> keys_;
  uint64_t acknowledged_ = 0;
};

}  // namespace loam::sim
