// The load on the shared Bd-tree. Each process changes only keys of its own, so that the model knows their states,
// and reads the keys of all.
#include "tests/sim/tree_fiber.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace loam::sim {
namespace {

using bdtree::Entry;

/// Nodes so small that a few keys split them.
constexpr bdtree::TreeOptions kSmall{.node_bytes = 300, .delta_bytes = 60, .cache_bytes = 4'000};
/// Keys of each process.
constexpr uint64_t kKeys = 60;

std::string payload_of(TreeModel::Tag tag) { return {reinterpret_cast<const char*>(&tag), sizeof tag}; }

/// The tag in the payload; 0, which is not a valid tag, for a payload that no process wrote.
TreeModel::Tag tag_of(std::string_view payload) {
  TreeModel::Tag tag = 0;
  if (payload.size() == sizeof tag) std::memcpy(&tag, payload.data(), sizeof tag);
  return tag;
}

std::vector<TreeModel::SeenEntry> tags_of(const std::vector<Entry>& entries) {
  std::vector<TreeModel::SeenEntry> seen;
  for (const Entry& entry : entries) seen.emplace_back(entry.key, tag_of(entry.payload));
  return seen;
}

}  // namespace

bool TrackedTree::answered(std::string_view call, const Status& status) {
  // A tree that has lost some of its nodes may return any result.
  if (process_.oracle.trees().checks_enabled()) process_.expected(call, status);
  return status.ok();
}

Status TrackedTree::open() {
  const LogicalTime requested_at = process_.oracle.now();
  auto store = client::open_tree_store(process_.client, std::string(kName));
  if (!answered("the opening of a tree", store.status())) return store.status();
  store_ = std::move(store).value();
  tree_ = bdtree::Tree::open(*store_, kSmall);
  const auto table = process_.client.open_table(kName);
  if (!table.ok()) return table.status();
  const std::string schema = table->schema().to_string();
  process_.oracle.tables().created(kName, table->id(), schema, schema, requested_at);
  return ok_status();
}

std::string TrackedTree::own_key(uint64_t n) const {
  std::string key = std::to_string(1'000 + n) + "/" + std::to_string(process_.number);
  if (n % 7 == 0) key.insert(0, 40, 'a');  // some keys are long and share a prefix
  return key;
}

void TrackedTree::toggle(const std::string& key) {
  TreeModel& model = process_.oracle.trees();
  const std::optional<bool> there = model.there(key);
  Status status;
  // If the process does not know whether the key is in the tree, it tries one of the two operations.
  if (!there.value_or(process_.oracle.now() % 2 == 0)) {
    const TreeModel::Tag tag = process_.next_tag();
    model.change_called(key, tag);
    status = tree_->insert(key, payload_of(tag));
  } else {
    model.change_called(key, std::nullopt);
    status = tree_->erase(key);
  }
  model.change_returned(key, status.code());
  answered("a change of a tree", status);
}

void TrackedTree::find(const std::string& key) {
  const LogicalTime requested_at = process_.oracle.now();
  const auto found = tree_->find(key);
  if (!answered("a find in a tree", found.status())) return;
  process_.oracle.trees().found(process_.number, key,
                                found->has_value() ? std::optional(tag_of(**found)) : std::nullopt, requested_at);
}

void TrackedTree::walk(const std::string& from, const std::string& to, bool backward) {
  const LogicalTime requested_at = process_.oracle.now();
  auto entries = backward ? tree_->range_backward(from, to, SIZE_MAX) : tree_->range(from, to, SIZE_MAX);
  if (!answered("a walk over a tree", entries.status())) return;
  if (backward) std::ranges::reverse(*entries);
  process_.oracle.trees().walked(process_.number, from, to, tags_of(*entries), requested_at);
}

bool TrackedTree::audit() {
  TreeModel& model = process_.oracle.trees();
  const LogicalTime requested_at = process_.oracle.now();
  const auto entries = tree_->range("", "", SIZE_MAX);
  if (!model.checks_enabled()) return true;
  // A reader finishes the merges that it meets. The tree's table is not an index, so a full node keeps no reserve for
  // them.
  if (entries.code() == StatusCode::kNoSpace) return true;
  if (!entries.ok()) return false;
  model.walked(process_.number, "", "", tags_of(*entries), requested_at);
  // All clients have ended, so each node of an unfinished split belongs to no process any more and can be swept.
  const auto end = store_->new_id();
  if (end.code() == StatusCode::kNoSpace) return true;  // the new id takes room, and a node may be full of live records
  if (!end.ok()) return false;
  std::vector<bdtree::TreeNodeId> ids;
  for (uint64_t id = bdtree::kRoot.value; id < end->value; ++id) ids.emplace_back(id);
  const auto orphans = tree_->collect_orphans(ids, [](uint64_t) { return true; });
  if (orphans.code() == StatusCode::kNoSpace) return true;
  if (!orphans.ok()) return false;
  const auto wrong = tree_->check_invariants();
  if (!wrong.ok()) return false;
  model.checked(*wrong);
  const auto left = tree_->collect_orphans(ids, [](uint64_t) { return true; });
  if (left.ok() && *left > 0) model.checked("a sweep found orphan nodes that an earlier sweep had removed");
  return left.ok();
}

void TreeFiber::run() {
  TrackedTree tree(process_);
  while (!tree.open().ok()) {
    if (stop_() || !process_.oracle.trees().checks_enabled()) return;
    process_.client.sleep_for(kRetryDelayNs);
  }
  // Alternates between few and many keys, so that nodes are split and merged.
  for (uint64_t step = 0; !stop_() && process_.oracle.trees().checks_enabled(); ++step) {
    const uint64_t keys = step / 40 % 2 == 0 ? kKeys : kKeys / 6;
    const std::string key = tree.own_key(random_.below(keys));
    const uint64_t what = random_.below(20);
    if (what < 13) {
      tree.toggle(key);
    } else if (what < 17) {
      tree.find(key);
    } else {
      const std::string to = random_.one_in(2) ? "" : tree.own_key(random_.below(kKeys));
      tree.walk(key, to, random_.one_in(2));
    }
    if (shape_.operations != 0 && step >= shape_.operations) return;
    process_.client.sleep_for(random_.below(shape_.think_ns + 1));
  }
}

}  // namespace loam::sim
