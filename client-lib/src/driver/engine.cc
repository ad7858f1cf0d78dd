#include "client-lib/src/driver/engine.h"

#include <algorithm>
#include <utility>

#include "common/wire/storage.h"

namespace loam::client {
namespace {

/// How long an orderly end waits for the commit manager's word.
constexpr uint64_t kCloseTimeoutNs = 2'000'000'000;

}  // namespace

Engine::Engine(Worker& worker, const std::string& manager_address, ClientOptions options)
    : worker_(worker),
      options_(std::move(options)),
      session_(worker, catalog_, manager_address, options_.request_timeout_ns),
      random_(std::random_device{}()) {
  worker_.set_hook(this);
}

Engine::~Engine() = default;

Status Engine::open() { return session_.open(options_.name, worker_.now_ns() + options_.connect_timeout_ns); }

void Engine::close() {
  runs_.wait();
  session_.close(worker_.now_ns() + kCloseTimeoutNs);
  const Status closed(StatusCode::kCancelled, "the client was closed");
  for (auto& [id, node] : nodes_) node.link->close(closed);
  while (!all_connections_gone()) worker_.scheduler().sleep_for(1'000'000);
  worker_.set_hook(nullptr);
}

bool Engine::all_connections_gone() const {
  return session_.connection_gone() &&
         std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node.second.link->idle(); }) &&
         std::all_of(retired_.begin(), retired_.end(), [](const auto& link) { return link->idle(); });
}

std::unique_ptr<Link> Engine::make_link(const wire::NodeInfo& info) {
  Link::Options options;
  options.address = info.address;
  options.name = "storage node " + std::to_string(info.id.value) + " at " + info.address;
  options.greeting = [this, incarnation = info.incarnation](Buffer& out, uint64_t sequence) {
    wire::encode_message(wire::Attach{session_.id(), session_.manager_epoch(), incarnation}, sequence, out);
  };
  return std::make_unique<Link>(worker_.transport(), std::move(options), [this] { return worker_.now_ns(); });
}

Result<Link*> Engine::node(NodeId id) {
  if (!session_.status().ok()) return session_.status();
  const wire::NodeInfo* info = catalog_.node(id);
  if (info == nullptr) {
    return Status(StatusCode::kUnavailable, "no storage node has number " + std::to_string(id.value));
  }
  NodeLink& node = nodes_[id];
  if (node.link != nullptr && (node.incarnation != info->incarnation || node.address != info->address)) {
    node.link->close({StatusCode::kUnavailable, node.link->name() + " was started anew"});
    retired_.push_back(std::move(node.link));
  }
  if (node.link == nullptr) node = {info->incarnation, info->address, make_link(*info)};
  return node.link.get();
}

Result<Link*> Engine::owner(TableId table, Key key) {
  if (!session_.status().ok()) return session_.status();
  return node(catalog_.catalog()->shards.owner(table, key));
}

Result<std::shared_ptr<SnapshotLease>> Engine::lease_snapshot() {
  BeginAnswer answer = session_.begin(true);
  if (!answer.status.ok()) return std::move(answer.status);
  return std::make_shared<SnapshotLease>(worker_, session_, std::move(answer));
}

uint64_t Engine::before_poll() {
  session_.flush();
  uint64_t deadline_ns = session_.earliest_deadline_ns();
  for (const auto& [id, node] : nodes_) deadline_ns = std::min(deadline_ns, node.link->earliest_deadline_ns());
  return deadline_ns;
}

void Engine::after_poll(uint64_t now_ns) {
  session_.expire(now_ns);
  for (auto& [id, node] : nodes_) node.link->expire(now_ns);
  std::erase_if(retired_, [](const auto& link) { return link->idle(); });
}

ClientStatistics Engine::statistics() const {
  const net::TransportCounters& net = worker_.transport_counters();
  ClientStatistics now;
  now.begun = counters_.begun.read();
  now.committed = counters_.committed.read();
  now.aborted = counters_.aborted.read();
  now.conflicts = counters_.conflicts.read();
  now.retries = counters_.retries.read();
  now.unknown_outcomes = counters_.unknown_outcomes.read();
  now.resolved = counters_.resolved.read();
  now.read_only = counters_.read_only.read();
  now.round_trips = counters_.round_trips.read();
  now.scans = counters_.scans.read();
  now.messages_sent = net.messages_out.read();
  now.messages_received = net.messages_in.read();
  now.frames_sent = net.frames_out.read();
  now.frames_received = net.frames_in.read();
  now.bytes_sent = net.bytes_out.read();
  now.bytes_received = net.bytes_in.read();
  return now;
}

}  // namespace loam::client
