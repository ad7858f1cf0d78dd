// The channels of one session to the storage nodes, one at a time for each. manager_session.cc has the channel to
// the commit manager; engine.cc opens the next session when this one ends.
#include "client-lib/src/driver/session.h"

#include <algorithm>
#include <string>
#include <utility>

namespace loam::client {
namespace {

std::string node_name(const wire::NodeInfo& info) {
  return "storage node " + std::to_string(info.id.value) + " at " + info.address;
}

Status records_lost(const wire::NodeInfo& info) {
  return {StatusCode::kUnavailable, node_name(info) +
                                        " was restarted and has lost its records; its shards refuse requests until "
                                        "an operator accepts the loss: loam node accept-loss " +
                                        std::to_string(info.id.value)};
}

}  // namespace

Session::Session(rpc::Worker& worker, CatalogCache& catalog, EngineCounters& counters, const ClientOptions& options,
                 const std::string& manager_address, latency::RequestTimer& timer, Events events)
    : worker_(worker),
      catalog_(catalog),
      counters_(counters),
      options_(options),
      timer_(timer),
      events_(std::move(events)),
      manager_(worker, catalog, counters, manager_options(manager_address)) {}

Session::~Session() = default;

ManagerSession::Options Session::manager_options(const std::string& address) {
  ManagerSession::Options manager;
  manager.address = address;
  manager.client_name = options_.name;
  manager.request_timeout_ns = options_.request_timeout_ns;
  manager.commit_timeout_ns = options_.commit_timeout_ns;
  manager.renew_every_ns = options_.renew_every_ns;
  manager.timer = &timer_;
  manager.on_end = [this] { ended(); };
  manager.on_overload = events_.on_overload;
  return manager;
}

void Session::ended() {
  // The channels fail their open requests with the reason of the end, so no fiber waits for a reply of an ended
  // session.
  for (auto& [id, node] : nodes_) {
    if (node.channel != nullptr) node.channel->close(status());
  }
  if (events_.on_end) events_.on_end(*this);
}

void Session::on_error(const wire::Error& error) {
  switch (error.status.code()) {
    case StatusCode::kFenced:
      return on_fenced(error.status);
    case StatusCode::kUnknownOutcome:  // the server has dropped the reply (R3, idempotent requests within a session)
      return give_up(error.status);
    case StatusCode::kOverloaded:
      return events_.on_overload(error.retry_after_ns);
    // The state of the storage node or the owner of the shard has changed, which a newer catalog shows.
    case StatusCode::kUnavailable:
    case StatusCode::kWrongShard:
      return manager_.refresh_catalog_async();
    default:
      return;
  }
}

std::unique_ptr<rpc::Channel> Session::make_channel(const wire::NodeInfo& info, uint64_t first_sequence) {
  rpc::Channel::Options options;
  options.address = info.address;
  options.name = node_name(info);
  options.first_sequence = first_sequence;
  options.timer = &timer_;
  options.node = info.id.value;
  options.startup_message = [this, incarnation = info.incarnation](Buffer& out) {
    wire::encode_message(wire::Attach{manager_.id(), manager_.manager_epoch(), incarnation, catalog_.cluster()}, 0,
                         out);
  };
  // A storage node may return as another incarnation, which only the catalog shows.
  options.on_disconnect = [this](const Status&, bool) { manager_.refresh_catalog_async(); };
  options.on_rejected = [this, id = info.id](const Status& status) {
    if (status == StatusCode::kFenced) on_fenced(status);
    if (status == StatusCode::kUnknownOutcome) give_up(status);  // the storage node has dropped its replies (R3)
    // A storage node of another cluster is at the address. The next request connects again, in case the right one is
    // back.
    if (status == StatusCode::kWrongCluster) retire(nodes_[id], status);
  };
  options.on_error = [this](const wire::Error& error) { on_error(error); };
  return std::make_unique<rpc::Channel>(worker_.transport(), std::move(options), [this] { return worker_.now_ns(); });
}

// Requests of the channel may be under way. after_poll() destroys the channel when the last one has ended.
void Session::retire(NodeChannel& node, const Status& status) {
  if (node.channel == nullptr) return;
  count_resent(node);
  node.counted_resent = 0;
  node.next_sequence = node.channel->next_sequence();
  node.channel->close(status);
  retired_.push_back(std::move(node.channel));
}

Result<rpc::Channel*> Session::node(NodeId id) {
  if (!status().ok()) return status();
  const wire::NodeInfo* info = catalog_.node(id);
  if (info == nullptr) {
    return Status(StatusCode::kUnavailable, "there is no storage node " + std::to_string(id.value));
  }
  if (info->state == wire::NodeState::kLost) return records_lost(*info);
  // A channel attaches to one incarnation (R10, cluster identity and incarnations). Channels are made at the first
  // use, so an idle client has no connections to storage nodes.
  NodeChannel& node = nodes_[id];
  if (node.channel != nullptr && node.incarnation != info->incarnation) {
    retire(node, {StatusCode::kUnavailable, node.channel->name() + " was restarted"});
  }
  if (node.channel == nullptr) {
    node.incarnation = info->incarnation;
    node.channel = make_channel(*info, node.next_sequence);
  }
  return node.channel.get();
}

Result<rpc::Channel*> Session::owner(TableId table, Key key) {
  if (!status().ok()) return status();
  return node(catalog_.catalog()->shards.owner(table, key));
}

void Session::check_nodes() {
  // Catalogs are immutable, so the same catalog needs no second check. This makes the check of each round cheap.
  if (catalog_.catalog() == checked_) return;
  checked_ = catalog_.catalog();
  for (auto& [id, node] : nodes_) {
    if (node.channel == nullptr) continue;
    const wire::NodeInfo* info = catalog_.node(id);
    const bool lost = info != nullptr && info->state == wire::NodeState::kLost;
    if (info != nullptr && !lost && info->incarnation == node.incarnation) continue;
    // The storage node has a new incarnation, has lost its records, or has left the catalog: the requests of the
    // channel can no longer succeed.
    const Status anew(StatusCode::kUnavailable, node.channel->name() + " was restarted");
    retire(node, lost ? records_lost(*info) : anew);
  }
}

void Session::flush() {
  for (auto& [id, node] : nodes_) {
    if (node.channel != nullptr) node.channel->flush();
  }
}

void Session::before_poll() {
  if (status().ok()) check_nodes();
  manager_.flush();
}

uint64_t Session::earliest_deadline_ns() const {
  uint64_t deadline_ns = manager_.earliest_deadline_ns();
  for (const auto& [id, node] : nodes_) {
    if (node.channel != nullptr) deadline_ns = std::min(deadline_ns, node.channel->earliest_deadline_ns());
  }
  for (const auto& channel : retired_) deadline_ns = std::min(deadline_ns, channel->earliest_deadline_ns());
  return deadline_ns;
}

void Session::after_poll(uint64_t now_ns) {
  manager_.expire(now_ns);
  counters_.resent.add(manager_.resent() - std::exchange(counted_resent_, manager_.resent()));
  for (auto& [id, node] : nodes_) {
    if (node.channel == nullptr) continue;
    node.channel->expire(now_ns);
    count_resent(node);
  }
  // By index: a callback may send a request, which may retire another channel.
  for (size_t i = 0; i < retired_.size(); ++i) retired_[i]->expire(now_ns);
  std::erase_if(retired_, [](const auto& channel) { return channel->idle(); });
}

void Session::count_resent(NodeChannel& node) {
  counters_.resent.add(node.channel->resent() - std::exchange(node.counted_resent, node.channel->resent()));
}

bool Session::idle() const {
  const auto rests = [](const auto& node) { return node.second.channel == nullptr || node.second.channel->idle(); };
  return !status().ok() && manager_.idle() && retired_.empty() && std::all_of(nodes_.begin(), nodes_.end(), rests);
}

RegisteredSnapshot::~RegisteredSnapshot() {
  // Any thread may destroy the object, but the session belongs to the worker thread.
  worker_.call_without_fiber([this] { session_->manager().release(answer_.snapshot_number); });
}

}  // namespace loam::client
