// Changes of leaves. Requests of several fibers for one leaf travel in one write.
#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "bdtree/src/tree/tree_impl.h"
#include "common/base/env.h"

namespace loam::bdtree {

/// The change of one key by one call. Lies in the frame of the calling fiber.
struct Tree::Impl::Request {
  std::string_view key;
  const Change* change = nullptr;
  Op op{};
  Intents intents{};
  UpdateCall* call = nullptr;
  WriteGroup* group = nullptr;  // the group in which it waits or which it leads
  std::optional<Status> outcome{};
  std::exception_ptr exception{};  // thrown while this request led
  uint32_t attempts = 0;
  uint64_t number = 0;             // number of its arrival in the group
  uint32_t joined_at = 0;          // value of WriteGroup::trips when it joined
  Request* next_leader = nullptr;  // the call's next request that is to lead
};

/// One call of update(): a fiber and its requests.
struct Tree::Impl::UpdateCall {
  /// Queues a request that is to lead its group. The fiber leads one group at a time, so a group may wait for the
  /// groups before it in this queue.
  void enqueue_leader(Request& request) {
    (leader_head == nullptr ? leader_head : leader_tail->next_leader) = &request;
    leader_tail = &request;
    wakeup.notify();
  }
  Request* pop_leader() {
    Request* const request = leader_head;
    if (request != nullptr) leader_head = std::exchange(request->next_leader, nullptr);
    return request;
  }

  size_t open = 0;  // requests without an outcome
  Request* leader_head = nullptr;
  Request* leader_tail = nullptr;  // valid while leader_head is not null
  fiber::WaitPoint wakeup{};       // notified if all requests have outcomes, or one is to lead
};

/// The requests of this process that change one leaf. One of them leads: its fiber reads the leaf, applies all
/// requests that wait by then, and writes the leaf once. Then the first remaining request leads.
///
/// A tree has at most one group for each leaf, so that writes of its own fibers do not conflict. The cache names the
/// leaf whose group a request joins. If the leader then finds the key in another leaf, the request moves to that
/// leaf's group.
struct Tree::Impl::WriteGroup {
  TreeNodeId id = kNoNode;  // id of the leaf; kNoNode for a single request that is not combined
  std::deque<Request*> waiting{};
  /// The leaf as the last write left it. The next leader does not read it again: its swap fails if the leaf has
  /// changed since.
  std::optional<Node> leaf{};
  uint32_t trips = 0;     // round trips of all leaders
  uint64_t requests = 0;  // number of requests that have joined
};

/// The requests that one attempt of a leader executes, its own request first.
struct Tree::Impl::Batch {
  std::vector<std::pair<Request*, Status>> requests;
  bool changed = false;
  std::string_view greatest;               // the greatest key that the batch puts
  std::vector<wire::IndexIntent> intents;  // the intents of all changes that the batch makes
  size_t intent_bytes = 0;
};

std::vector<Status> Tree::Impl::update(std::span<const KeyChange> changes, Reserve reserve) {
  std::vector<Status> outcomes(changes.size());
  std::vector<Request> requests(changes.size());
  UpdateCall call{.open = changes.size()};
  for (size_t i = 0; i < changes.size(); ++i) {
    requests[i].key = changes[i].key;
    requests[i].change = changes[i].change;
    requests[i].op.reserve = reserve;
    requests[i].intents = changes[i].intents;
    requests[i].call = &call;
  }
  if (options_.combine) {
    combine(call, requests);
  } else {
    for (Request& request : requests) {
      WriteGroup alone;
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

void Tree::Impl::combine(UpdateCall& call, std::span<Request> requests) {
  if (requests.empty()) return;
  Result<Hint> there = hint(Seek::to(requests[0].key), 0, requests[0].op);
  while (!there.ok()) {
    // A malformed inner node fails only the request whose descent met it, if the root is intact. Other errors fail
    // all.
    const bool alone = there.code() == StatusCode::kMalformed && cache_.find(kRoot) != nullptr;
    const size_t failed = alone ? 1 : requests.size();
    for (Request& request : requests.first(failed)) request.outcome = there.status();
    call.open -= failed;
    requests = requests.subspan(failed);
    if (requests.empty()) return;
    there = hint(Seek::to(requests[0].key), 0, requests[0].op);
  }
  std::vector<Request*> all;
  all.reserve(requests.size());
  for (Request& request : requests) all.push_back(&request);
  join(there->id, all);
  while (call.open > 0) {
    if (Request* const own = call.pop_leader()) {
      WriteGroup& group = *own->group;
      lead(*own);
      hand_off_leadership(group);
    } else {
      call.wakeup.wait();
    }
  }
}

/// Adds the requests to the group of the leaf. If there is no such group, makes it, and the first request leads it.
/// An exception (memory ran out) changes nothing.
Tree::Impl::WriteGroup& Tree::Impl::join(TreeNodeId leaf, std::span<Request* const> requests) {
  auto place = groups_.find(leaf);
  const bool made = place == groups_.end();
  const std::shared_ptr<WriteGroup> group = made ? std::make_shared<WriteGroup>() : place->second;
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
  if (made) hand_off_leadership(*group);
  return *group;
}

/// Lets the first waiting request lead, or ends the group if no request waits.
void Tree::Impl::hand_off_leadership(WriteGroup& group) {
  if (group.waiting.empty()) {
    groups_.erase(group.id);
  } else {
    Request& next = *group.waiting.front();
    group.waiting.pop_front();
    next.call->enqueue_leader(next);
  }
}

/// Moves the leader's request, and all waiting requests of the same leaf, to the group of that leaf: the cache had
/// named a wrong leaf.
void Tree::Impl::move(WriteGroup& from, Request& own, Node leaf) {
  std::vector<Request*> moving = {&own};
  for (Request* request : from.waiting) {
    if (leaf.header().covers(request->key)) moving.push_back(request);
  }
  const bool made = !groups_.contains(leaf.id());
  WriteGroup& to = join(leaf.id(), moving);
  std::erase_if(from.waiting, [&](const Request* request) { return request->group != &from; });
  if (made) to.leaf = std::move(leaf);
  Env::probe("tree.group_moved");
}

size_t Tree::Impl::keys_in_first_leaf(std::span<const std::string_view> keys) {
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
  if (--request.call->open == 0) request.call->wakeup.notify();
}

/// Applies the leader's own request, and then the waiting requests that fit into the same write.
///
/// A waiting request is combined only if it may use the memory reserve that the leader's write uses [R6]; with
/// `alone` none is combined.
///
/// A batch fits into one message. The leaf's bytes do not bound the intents, because a change may replace a payload
/// by one of the same size. So a batch whose intents take kMaxBatchIntentBytes takes no further request.
void Tree::Impl::apply(Node& leaf, WriteGroup& group, Request& own, bool alone, Batch& batch) {
  const size_t enough = leaf.bytes() + options_.node_bytes / 2;
  const auto apply_request = [&](Request& request) {
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
  apply_request(own);
  const auto full = [&] { return alone || leaf.bytes() >= enough || batch.intent_bytes >= kMaxBatchIntentBytes; };
  for (auto next = group.waiting.begin(); next != group.waiting.end() && !full();) {
    Request& request = **next;
    if (request.op.reserve >= own.op.reserve && leaf.header().covers(request.key)) {
      batch.requests.emplace_back(&request, ok_status());
      next = group.waiting.erase(next);  // each request waits or is in the batch, also if apply_request() throws
      apply_request(request);
    } else {
      ++next;
    }
  }
}

void Tree::Impl::lead(Request& own) {
  Batch batch;
  try {
    lead(*own.group, own, batch);
  } catch (...) {  // memory ran out; the write may have been sent, so the outcomes are unknown
    own.exception = std::current_exception();
    for (const auto& [request, outcome] : batch.requests) {
      if (!request->outcome) finish(*request, Status(StatusCode::kUnknownOutcome, std::string()));
    }
    if (!own.outcome) finish(own, Status(StatusCode::kUnknownOutcome, std::string()));
  }
}

void Tree::Impl::lead(WriteGroup& group, Request& own, Batch& batch) {
  // Requests that were combined into a failed attempt return to the head of the queue, in their order.
  const auto back_to_waiting = [&] {
    for (; batch.requests.size() > 1; batch.requests.pop_back()) {
      group.waiting.push_front(batch.requests.back().first);
    }
  };
  bool alone = false;
  bool lost = false;
  while (own.attempts < options_.attempts) {
    // Step 1: the leaf. It is the one that the previous leader left, or is read now.
    Op op{.reserve = own.op.reserve};
    std::optional<Node> leaf = std::exchange(group.leaf, std::nullopt);
    const bool kept = leaf && leaf->header().covers(own.key);
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
    // Step 2: apply the requests to the copy of the leaf.
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
    // Step 3: write the leaf once. After a conflict the next attempt reads it again.
    op.trips = 0;
    const Status written = write(*leaf, batch.greatest, batch.intents, op);
    group.trips += op.trips;
    // A batch without room may fit request by request.
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
      merge_due_leaf();
      group.leaf = std::move(leaf);
    }
    return;
  }
  finish(own, Status(StatusCode::kConflict, "other writers kept changing the leaf of a key; try again"));
}

}  // namespace loam::bdtree
