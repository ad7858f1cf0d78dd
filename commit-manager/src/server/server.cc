// One poll round of the server thread, and the two directions of messages: events of the transport to the core, and
// messages of the core to connections. manager.cc runs the rounds.
#include "commit-manager/src/server/server.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"

namespace loam::commit {

Server::Server(const CoreOptions& options, net::Transport& transport, Clock clock, const Persistence& persistence)
    : transport_(transport),
      clock_(std::move(clock)),
      log_(persistence.log),
      core_(options, *this, persistence.state_store, persistence.state, log_,
            log_ == nullptr ? CommitLogContents() : log_->initial_contents()) {
  if (log_ != nullptr) log_progress_ = {log_->initial_contents().end, log_->initial_contents().end};
}

Server::~Server() = default;

Result<net::Address> Server::listen(const net::Address& address) {
  LOAM_ASSIGN_OR_RETURN(listener_, transport_.listen(address, *this));
  return listener_->address();
}

/// Log progress goes before the deadlines: a publication of this round then covers the commits that it makes visible.
bool Server::step(uint64_t timeout_ns) {
  if (!timer_) {
    timer_.emplace(latencies_).watch(transport_.last_look_ns());
    core_.set_timer(&*timer_);
  }
  timer_->begin_round();
  // Step 1: tasks and the log. Both run each time; the sum of the results keeps the second call from being skipped.
  const bool ran = static_cast<int>(run_tasks()) + static_cast<int>(poll_log_progress()) != 0;
  // Step 2: work that is due by the clock. It goes before the network, so a large number of messages delays leases
  // and publications by one round at most.
  const uint64_t now = clock_();
  const bool due = core_.next_deadline_ns() <= now;
  core_.on_timer(now);
  // Step 3: the network. The wait ends at the next deadline of the core, or when another thread wakes the transport.
  const uint64_t deadline = core_.next_deadline_ns();
  const size_t events = transport_.poll(deadline <= now ? 0 : std::min(timeout_ns, deadline - now));
  if (events == 0) timer_->idle();
  return ran || due || events > 0;
}

void Server::close_connections() {
  if (listener_ != nullptr) std::exchange(listener_, nullptr)->close();
  // Without its context a connection no longer leads to the core.
  for (const auto& [id, entry] : peers_) {
    entry->connection->set_context(nullptr);
    entry->connection->close({StatusCode::kUnavailable, "the commit manager is stopping"});
  }
  peers_.clear();
  transport_.poll(0);
}

bool Server::post(std::function<void(Core&)> task) {
  {
    const std::scoped_lock lock(mutex_);
    if (!open_) return false;
    tasks_.push_back(std::move(task));
  }
  transport_.wake();
  return true;
}

void Server::close_task_queue() {
  std::vector<std::function<void(Core&)>> dropped;  // declared first: it is destroyed after the lock is released
  const std::scoped_lock lock(mutex_);
  open_ = false;
  dropped.swap(tasks_);
}

bool Server::run_tasks() {
  // The tasks run without the mutex, so that they may post further ones.
  std::vector<std::function<void(Core&)>> tasks;
  {
    const std::scoped_lock lock(mutex_);
    if (tasks_.empty()) return false;
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task(core_);
  return true;
}

bool Server::poll_log_progress() {
  if (log_ == nullptr) return false;
  const CommitLogProgress progress = log_->progress();
  if (progress.accepted == log_progress_.accepted && progress.flushed == log_progress_.flushed) return false;
  log_progress_ = progress;
  core_.on_log_progress(progress);
  return true;
}

void Server::on_connected(net::Connection& connection) {
  auto entry = std::make_unique<PeerEntry>(PeerEntry{PeerId(++last_peer_), &connection});
  connection.set_context(entry.get());
  peers_.emplace(entry->id, std::move(entry));
}

void Server::on_messages(net::Connection& connection, std::span<const Bytes> messages) {
  const PeerEntry* entry = connection.context<PeerEntry>();
  if (entry == nullptr) return;
  const uint64_t now_ns = clock_();
  timer_->begin(now_ns);
  core_.on_messages(entry->id, messages, now_ns);
  timer_->mark(latency::Stage::kExecution);
  timer_->end();
}

void Server::on_closed(net::Connection& connection, const Status& status) {
  const PeerEntry* entry = connection.context<PeerEntry>();
  if (entry == nullptr) return;  // close() ended it, so the core has dropped the peer already
  if (status.code() == StatusCode::kMalformed || status.code() == StatusCode::kUnsupportedVersion) {
    const std::string peer = connection.peer().to_string();
    log_warning("connection.malformed", "connection from " + peer + " closed: " + status.to_string(), {{"peer", peer}});
  }
  // The entry goes before the core hears of it: a message that the core sends meanwhile finds no peer.
  const PeerId id = entry->id;
  peers_.erase(id);
  core_.on_peer_disconnected(id);
}

std::string Server::address_of(PeerId peer) const {
  const auto at = peers_.find(peer);
  return at == peers_.end() ? std::string() : at->second->connection->peer().to_string();
}

bool Server::send(PeerId peer, Bytes message) {
  const auto at = peers_.find(peer);
  return at != peers_.end() && at->second->connection->send(message).ok();
}

void Server::close(PeerId peer, const Status& why) {
  const auto at = peers_.find(peer);
  if (at == peers_.end()) return;
  net::Connection& connection = *at->second->connection;
  const std::string peer_address = connection.peer().to_string();
  log_warning("connection.closed", "connection from " + peer_address + " closed: " + why.to_string(),
              {{"peer", peer_address}});
  // The core has dropped the peer. Without a context, on_closed() does not report its end to the core again.
  connection.set_context(nullptr);
  peers_.erase(at);
  connection.close(why);
}

void Server::log(const LogLine& line, std::source_location where) { loam::log(line, where); }

}  // namespace loam::commit
