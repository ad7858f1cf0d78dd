// Changes of leaves: one fiber's, or several fibers' in one write.
#include <algorithm>
#include <string>
#include <utility>

#include "bdtree/src/tree/tree_impl.h"

namespace loam::bdtree {

/// One fiber's change. Lies on its stack.
struct Tree::Impl::Request {
  std::string_view key;
  const Change* change = nullptr;
  Op op{};
  Intents intents{};
  std::optional<Status> outcome{};
  uint32_t joined_at = 0;  // Group::trips
  fiber::Event woken{};    // it has its outcome, or is to lead
};

/// Fibers that want to change one leaf. One of them leads: it reads and changes the leaf and writes it once, for all
/// requests that wait by then. The first request that is left leads next.
struct Tree::Impl::Group {
  std::deque<Request*> waiting;
  /// The leaf as the last write left it. The next leader does not read it again: its swap fails if the leaf has
  /// changed since.
  std::optional<Node> leaf;
  uint32_t trips = 0;  // made by all leaders
};

/// Makes the first that waits the next leader of a group, when a leader ends, also by an exception.
struct Tree::Impl::HandOver {
  Impl& tree;
  TreeNodeId leaf;
  Group& group;

  ~HandOver() {
    if (group.waiting.empty()) {
      tree.groups_.erase(leaf);
    } else {
      std::exchange(group.waiting.front(), nullptr)->woken.notify();
      group.waiting.pop_front();
    }
  }
};

/// What one attempt of a leader makes of the requests that it serves, itself first.
struct Tree::Impl::Batch {
  std::vector<std::pair<Request*, Status>> requests;
  bool changed = false;
  std::string_view greatest;               // key put
  std::vector<wire::IndexIntent> intents;  // those of the changes that the batch makes
  size_t intent_bytes = 0;
};

Status Tree::Impl::update(std::string_view key, const Change& change, Reserve reserve, Intents intents) {
  Request own{.key = key, .change = &change, .op = {.reserve = reserve}, .intents = intents};
  if (!options_.combine) {
    Group alone;
    lead(alone, own);
    own.op.trips += alone.trips;
  } else {
    LOAM_ASSIGN_OR_RETURN(const Hint there, hint(Seek::to(key), 0, own.op));
    auto place = groups_.find(there.id);
    const bool first = place == groups_.end();
    if (first) place = groups_.emplace(there.id, std::make_shared<Group>()).first;
    const std::shared_ptr<Group> group = place->second;
    own.joined_at = group->trips;
    if (!first) {
      group->waiting.push_back(&own);
      own.woken.wait();
    }
    if (!own.outcome) {
      const HandOver hand_over{*this, there.id, *group};
      lead(*group, own);
    }
    own.op.trips += group->trips - own.joined_at;
  }
  count(statistics_.change_trips, own.op);
  return std::move(*own.outcome);
}

/// Applies the leader's own request, and then the waiting requests that fit into the same write.
///
/// A waiting request is combined only if it may use the memory reserve that the leader's write uses [R6]; with `alone`
/// none is combined.
///
/// A batch fits into one message. The leaf's bytes do not bound the intents, because a change may replace a payload by
/// one of the same size. So a batch whose intents take kFullOfIntentBytes takes no further request.
void Tree::Impl::apply(Node& leaf, Group& group, Request& own, bool alone, Batch& batch) {
  const size_t enough = leaf.bytes() + options_.node_bytes / 2;
  const auto serve = [&](Request& request) {
    const auto edit = (*request.change)(leaf.find(request.key));
    batch.requests.back().second = edit.status();
    if (!edit.ok() || edit->kind == Edit::Kind::kKeep) return;
    const bool put = edit->kind == Edit::Kind::kPut;
    if (put && edit->payload.size() > kMaxPayloadBytes) {
      batch.requests.back().second =
          Status(StatusCode::kInvalidArgument, "a payload of " + std::to_string(edit->payload.size()) +
                                                   " bytes; a tree's has at most " + std::to_string(kMaxPayloadBytes));
      return;
    }
    leaf.change(request.key, put ? std::optional<std::string_view>(edit->payload) : std::nullopt);
    batch.changed = true;
    if (put) batch.greatest = std::max(batch.greatest, request.key);
    for (const wire::IndexIntent& intent : request.intents) {
      batch.intents.push_back(intent);
      batch.intent_bytes += sizeof(intent) + intent.key.size();
    }
  };
  batch.requests.emplace_back(&own, ok_status());
  serve(own);
  const auto full = [&] { return alone || leaf.bytes() >= enough || batch.intent_bytes >= kFullOfIntentBytes; };
  for (auto next = group.waiting.begin(); next != group.waiting.end() && !full();) {
    Request& request = **next;
    if (request.op.reserve >= own.op.reserve && leaf.frame().covers(request.key)) {
      batch.requests.emplace_back(&request, ok_status());
      next = group.waiting.erase(next);  // each request waits or is in the batch, also if serve() throws
      serve(request);
    } else {
      ++next;
    }
  }
}

void Tree::Impl::lead(Group& group, Request& own) {
  Batch batch;
  try {
    lead(group, own, batch);
  } catch (...) {  // memory ran out: the write may be under way
    for (const auto& [request, outcome] : batch.requests) {
      if (request == &own || request->outcome) continue;
      request->outcome.emplace(StatusCode::kUnknownOutcome, std::string());
      request->woken.notify();
    }
    throw;
  }
}

void Tree::Impl::lead(Group& group, Request& own, Batch& batch) {
  const auto back_to_waiting = [&] {
    for (; batch.requests.size() > 1; batch.requests.pop_back()) {
      group.waiting.push_front(batch.requests.back().first);
    }
  };
  bool alone = false;
  for (uint32_t attempt = 0; attempt < options_.attempts;) {
    Op op{.reserve = own.op.reserve};
    std::optional<Node> leaf = std::exchange(group.leaf, std::nullopt);
    const bool kept = leaf && leaf->frame().covers(own.key);
    if (!kept) {
      if (attempt > 0) store_.back_off(attempt);
      ++attempt;
      auto found = locate(Seek::to(own.key), 0, op);
      group.trips += op.trips;
      if (!found.ok()) {
        own.outcome = found.status();
        return;
      }
      leaf.emplace(std::move(found).value());
    }
    batch = {};
    apply(*leaf, group, own, alone, batch);
    if (!batch.changed) {
      back_to_waiting();
      // What changes nothing must have been read after it was asked for: the others' may have come while this was read.
      if (kept) continue;
      own.outcome = std::move(batch.requests[0].second);
      return;
    }
    op.trips = 0;
    const Status written = write(*leaf, batch.greatest, batch.intents, op);
    group.trips += op.trips;
    // What does not fit together may fit alone.
    const bool no_room = written == StatusCode::kNoSpace || written == StatusCode::kOverloaded;
    const bool crowded = no_room && batch.requests.size() > 1;
    if (written.code() == StatusCode::kConflict || crowded) {
      alone = alone || crowded;
      back_to_waiting();
      continue;
    }
    statistics_.combined += batch.requests.size() - 1;
    for (auto& [request, outcome] : batch.requests) {
      if (!written.ok()) outcome = written;
      request->outcome = std::move(outcome);
      if (request != &own) request->woken.notify();
    }
    if (written.ok() && leaf->leaf()) {  // the root may have become an inner node
      defer_merge(*leaf);
      look_again();
      group.leaf = std::move(leaf);
    }
    return;
  }
  own.outcome = Status(StatusCode::kConflict, "others kept changing the leaf of a key; try again");
}

}  // namespace loam::bdtree
