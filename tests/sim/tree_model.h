// A Bd-tree, judged from what clients did and saw.
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

/// The model of the tree that all clients share. Every key has one writer, a process, which does one thing to it at a
/// time; what others see must be what may have been there while they looked. The leaves are everybody's.
///
/// A node that lost its memory took nodes of the tree with it: from then on nothing is judged.
///
/// Owner: the Oracle. Threads: every entry takes the verdict's lock.
class TreeModel {
 public:
  using Tag = uint64_t;
  using SeenEntry = std::pair<std::string, Tag>;

  TreeModel(Verdict& verdict, const Losses& losses) : verdict_(verdict), losses_(losses) {}

  /// Before an insert (a tag, unique in the run) or an erase (none) by the key's process.
  void change_called(const std::string& key, std::optional<Tag> tag);
  void change_returned(const std::string& key, StatusCode code);
  /// A find was answered. `asked`: Oracle::now() before the call.
  void found(uint32_t reader, const std::string& key, std::optional<Tag> tag, Moment asked);
  /// A walk over all keys from `from` on and below `to` (empty: no bound).
  void walked(uint32_t reader, std::string_view from, std::string_view to, std::span<const SeenEntry> entries,
              Moment asked);
  /// What the tree says of its own structure when nobody works any more; empty: nothing is wrong.
  void checked(std::string_view wrong);

  /// Whether its process knows the key to be there; nothing: it cannot know.
  std::optional<bool> there(const std::string& key) const;
  uint64_t changes() const { return acknowledged_; }
  bool judged() const { return !losses_.any(); }

 private:
  enum class State : uint8_t { kCalled, kDone, kRefused, kUnknown };
  struct Change {
    std::optional<Tag> tag;
    Moment called = 0;
    Moment ended = kNever;
    State state = State::kCalled;
  };
  void judge(uint32_t reader, const std::string& key, std::optional<Tag> tag, Moment asked);

  Verdict& verdict_;
  const Losses& losses_;
  std::map<std::string, std::vector<Change>, std::less<>> keys_;
  uint64_t acknowledged_ = 0;
};

}  // namespace loam::sim
