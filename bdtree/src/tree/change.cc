// Changes of leaves: one fiber's, or several fibers' in one write.
#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "bdtree/src/tree/tree_impl.h"
#include "common/base/env.h"

namespace loam::bdtree {

/// One key's change. Lies in its caller's frame.
struct Tree::Impl::Request {
  std::string_view key;
  const Change* change = nullptr;
  Op op{};
  Intents intents{};
  Party* party = nullptr;
  Group* group = nullptr;  // it waits there, or leads it
  std::optional<Status> outcome{};
  std::exception_ptr exception{};  // what this request threw when it led
  uint32_t attempts = 0;
  uint64_t number = 0;              // in the order in which they came to the group
  uint32_t joined_at = 0;           // Group::trips
  Request* next_to_lead = nullptr;  // the party's next request that is to lead
};

/// One fiber and its requests.
struct Tree::Impl::Party {
  /// In turns: a group whose leader is here waits for those before it.
  void shall_lead(Request& request) {
    (to_lead == nullptr ? to_lead : last_to_lead->next_to_lead) = &request;
    last_to_lead = &request;
    woken.notify();
  }
  Request* next_to_lead() {
    Request* const request = to_lead;
    if (request != nullptr) to_lead = std::exchange(request->next_to_lead, nullptr);
    return request;
  }

  size_t open = 0;  // requests without an outcome
  Request* to_lead = nullptr;
  Request* last_to_lead = nullptr;  // if there is one to lead
  fiber::WaitPoint woken{};         // all have their outcome, or one is to lead
};

/// Requests that change one leaf. One of them leads: its fiber reads and changes the leaf and writes it once, for all
/// requests that wait by then. The first request that is left leads next.
///
/// A tree has at most one group for each leaf, so that writes of its own fibers do not conflict. The cache names the
/// leaf whose group a request joins. If the leader then finds the key in another leaf, the request moves to that leaf's
/// group.
struct Tree::Impl::Group {
  TreeNodeId id = kNoNode;  // the leaf's; kNoNode if the only request is not combined
  std::deque<Request*> waiting{};
  /// The leaf as the last write left it. The next leader does not read it again: its swap fails if the leaf has
  /// changed since.
  std::optional<Node> leaf{};
  uint32_t trips = 0;     // made by all leaders
  uint64_t requests = 0;  // that ever came
};

/// What one attempt of a leader makes of the requests that it serves, itself first.
struct Tree::Impl::Batch {
  std::vector<std::pair<Request*, Status>> requests;
  bool changed = false;
  std::string_view greatest;               // key put
  std::vector<wire::IndexIntent> intents;  // the intents of all changes that the batch makes
  size_t intent_bytes = 0;
};

std::vector<Status> Tree::Impl::update(std::span<const KeyChange> changes, Reserve reserve) {
  std::vector<Status> outcomes(changes.size());
  std::vector<Request> requests(changes.size());
  Party party{.open = changes.size()};
  for (size_t i = 0; i < changes.size(); ++i) {
    requests[i].key = changes[i].key;
    requests[i].change = changes[i].change;
    requests[i].op.reserve = reserve;
    requests[i].intents = changes[i].intents;
    requests[i].party = &party;
  }
  if (options_.combine) {
    combine(party, requests);
  } else {
    for (Request& request : requests) {
      Group alone;
      request.group = &alone;
      lead(request);
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].exception) std::rethrow_exception(requests[i].exception);
    count(statistics_.change_trips, requests[i].op);
    outcomes[i] = std::move(*requests[i].outcome);
  }
  return outcomes;
}

void Tree::Impl::combine(Party& party, std::span<Request> requests) {
  if (requests.empty()) return;
  Result<Hint> there = hint(Seek::to(requests[0].key), 0, requests[0].op);
  while (!there.ok()) {
    // A malformed inner node on the way to one key says nothing about the next key, if the tree has a root.
    const bool alone = there.code() == StatusCode::kMalformed && cache_.find(kRoot) != nullptr;
    const size_t failed = alone ? 1 : requests.size();
    for (Request& request : requests.first(failed)) request.outcome = there.status();
    party.open -= failed;
    requests = requests.subspan(failed);
    if (requests.empty()) return;
    there = hint(Seek::to(requests[0].key), 0, requests[0].op);
  }
  std::vector<Request*> all;
  all.reserve(requests.size());
  for (Request& request : requests) all.push_back(&request);
  join(there->id, all);
  while (party.open > 0) {
    if (Request* const own = party.next_to_lead()) {
      Group& group = *own->group;
      lead(*own);
      hand_over(group);
    } else {
      party.woken.wait();
    }
  }
}

/// The requests wait in the group of the leaf; if there was none, the first of them leads it. An exception (memory ran
/// out) leaves everything as it was.
Tree::Impl::Group& Tree::Impl::join(TreeNodeId leaf, std::span<Request* const> requests) {
  auto place = groups_.find(leaf);
  const bool made = place == groups_.end();
  const std::shared_ptr<Group> group = made ? std::make_shared<Group>() : place->second;
  const size_t before = group->waiting.size();
  group->waiting.resize(before + requests.size());
  if (made) groups_.emplace(leaf, group);
  group->id = leaf;
  std::ranges::copy(requests, group->waiting.begin() + static_cast<ptrdiff_t>(before));
  for (Request* request : requests) {
    if (request->group != nullptr) request->op.trips += request->group->trips - request->joined_at;
    request->group = group.get();
    request->joined_at = group->trips;
    request->number = ++group->requests;
  }
  if (made) hand_over(*group);
  return *group;
}

/// The first that waits leads next.
void Tree::Impl::hand_over(Group& group) {
  if (group.waiting.empty()) {
    groups_.erase(group.id);
  } else {
    Request& next = *group.waiting.front();
    group.waiting.pop_front();
    next.party->shall_lead(next);
  }
}

/// The leader's request, and those that wait for the same leaf, belong to the group of that leaf.
void Tree::Impl::move(Group& from, Request& own, Node leaf) {
  std::vector<Request*> moving = {&own};
  for (Request* request : from.waiting) {
    if (leaf.frame().covers(request->key)) moving.push_back(request);
  }
  const bool made = !groups_.contains(leaf.id());
  Group& to = join(leaf.id(), moving);
  std::erase_if(from.waiting, [&](const Request* request) { return request->group != &from; });
  if (made) to.leaf = std::move(leaf);
  Env::probe("tree.group_moved");
}

size_t Tree::Impl::run(std::span<const std::string_view> keys) {
  if (keys.size() < 2) return keys.size();
  const TreeNodeId leaf = cached_leaf(Seek::to(keys[0]));
  if (leaf == kNoNode) return 1;
  size_t length = 1;
  while (length < keys.size() && cached_leaf(Seek::to(keys[length])) == leaf) ++length;
  return length;
}

void Tree::Impl::finish(Request& request, Status outcome) {
  request.op.trips += request.group->trips - request.joined_at;
  request.outcome = std::move(outcome);
  if (--request.party->open == 0) request.party->woken.notify();
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

void Tree::Impl::lead(Request& own) {
  Batch batch;
  try {
    lead(*own.group, own, batch);
  } catch (...) {  // memory ran out: the write may be under way
    own.exception = std::current_exception();
    for (const auto& [request, outcome] : batch.requests) {
      if (!request->outcome) finish(*request, Status(StatusCode::kUnknownOutcome, std::string()));
    }
    if (!own.outcome) finish(own, Status(StatusCode::kUnknownOutcome, std::string()));
  }
}

void Tree::Impl::lead(Group& group, Request& own, Batch& batch) {
  const auto back_to_waiting = [&] {
    for (; batch.requests.size() > 1; batch.requests.pop_back()) {
      group.waiting.push_front(batch.requests.back().first);
    }
  };
  bool alone = false;
  bool lost = false;
  while (own.attempts < options_.attempts) {
    Op op{.reserve = own.op.reserve};
    std::optional<Node> leaf = std::exchange(group.leaf, std::nullopt);
    const bool kept = leaf && leaf->frame().covers(own.key);
    const uint64_t asked = group.requests;
    if (!kept) {
      std::optional<Node> others = std::exchange(leaf, std::nullopt);
      if (lost && own.attempts > 0) store_.back_off(own.attempts);
      ++own.attempts;
      auto found = locate(Seek::to(own.key), 0, op);
      group.trips += op.trips;
      if (!found.ok()) return finish(own, found.status());
      if (group.id != kNoNode && group.id != found->id()) {
        group.leaf = std::move(others);
        return move(group, own, std::move(found).value());
      }
      leaf.emplace(std::move(found).value());
    }
    batch = {};
    apply(*leaf, group, own, alone, batch);
    if (!batch.changed) {
      // A request that changes nothing is answered from a leaf that was read after the request came.
      for (; batch.requests.size() > (kept ? 1 : 0); batch.requests.pop_back()) {
        const auto& [request, outcome] = batch.requests.back();
        if (!kept && request->number <= asked) {
          finish(*request, outcome);
        } else {
          group.waiting.push_front(request);
        }
      }
      if (kept) continue;
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
      lost = true;
      back_to_waiting();
      continue;
    }
    statistics_.combined += batch.requests.size() - 1;
    for (const auto& [request, outcome] : batch.requests) {
      finish(*request, written.ok() ? outcome : written);
    }
    if (written.ok() && leaf->leaf()) {  // the root may have become an inner node
      defer_merge(*leaf);
      look_again();
      group.leaf = std::move(leaf);
    }
    return;
  }
  finish(own, Status(StatusCode::kConflict, "others kept changing the leaf of a key; try again"));
}

}  // namespace loam::bdtree
