// The channel and the pauses of one storage node. recovery_engine.cc parks tasks here and takes them back.
#include "commit-manager/src/recovery/recovery_node.h"

#include <algorithm>
#include <utility>

#include "common/wire/storage.h"

namespace loam::commit {

namespace {

std::string name_of(const wire::NodeInfo& info) {
  return "storage node " + std::to_string(info.id.value) + " at " + info.address;
}

}  // namespace

Status node_failure(const Status& status) {
  if (status != StatusCode::kMalformed) return status;
  return {StatusCode::kUnavailable, std::string(status.message())};
}

RecoveryNode::RecoveryNode(rpc::Worker& worker, wire::NodeInfo info, const RecovererOptions& options)
    : worker_(worker), info_(std::move(info)), name_(name_of(info_)), options_(options) {
  make_channel();
}

void RecoveryNode::make_channel() {
  rpc::Channel::Options options;
  if (channel_ != nullptr) {
    options.first_sequence = channel_->next_sequence();
    // The old channel may still have open requests, whose fibers wait for their failure.
    old_channels_.push_back(std::move(channel_));
  }
  end_ = ok_status();
  options.address = info_.address;
  options.name = name_;
  // The channel repeats no request over another connection. The attempt fails instead, and the whole task is repeated.
  options.fail_on_disconnect = true;
  options.startup_message = [this](Buffer& out) {
    wire::encode_message(wire::Attach{options_.session, options_.manager_epoch, info_.incarnation, options_.cluster}, 0,
                         out);
  };
  options.on_rejected = [this](const Status& status) { end_ = status; };
  channel_ =
      std::make_unique<rpc::Channel>(worker_.transport(), std::move(options), [this] { return worker_.now_ns(); });
}

Result<rpc::Channel*> RecoveryNode::channel() {
  if (info_.state == wire::NodeState::kLost) {
    return Status(StatusCode::kUnavailable,
                  name_ + " was started again with empty memory, and its loss is not accepted");
  }
  if (paused()) {
    return Status(StatusCode::kUnavailable, name_ + " is paused: " + std::string(last_failure_.message()));
  }
  if (!end_.ok()) make_channel();
  return channel_.get();
}

// ---- pauses --------------------------------------------------------------------------------------------------------

void RecoveryNode::log_line(LogEvent event, const std::string& line, LogFields fields,
                            std::source_location where) const {
  if (options_.on_log_line) options_.on_log_line(event, line, fields, where);
}

void RecoveryNode::note_failure(const Status& status) {
  if (paused()) return;  // many requests under way fail together; they count as one failure
  last_failure_ = status;
  // The pause grows with the failures in a row: short at first, because other clients get conflicts at the records
  // until recovery is done, and longer for a node that stays away.
  paused_until_ns_ = worker_.now_ns() + pause_ns(failures_);
  last_probe_ns_ = paused_until_ns_;
  if (++failures_ == kFailuresBeforeWarning) {
    log_line("recovery.waits_for_node", "recovery waits for " + name_ + ": " + std::string(status.message()), {});
  }
}

void RecoveryNode::note_success() {
  if (paused()) return;  // another request has failed since this one was sent
  if (failures_ >= kFailuresBeforeWarning) {
    log_line("recovery.node_answers", name_ + " answers again; recovery continues", {});
  }
  resume();
}

void RecoveryNode::set_info(const wire::NodeInfo& info) {
  const bool moved = info.incarnation != info_.incarnation || info.address != info_.address;
  // A change is news about the node, so its tasks need not wait for the end of the pause.
  if (moved || info.state != info_.state) resume();
  info_ = info;
  if (!moved) return;
  channel_->close({StatusCode::kUnavailable, name_ + " was started again"});
  name_ = name_of(info_);
  make_channel();
}

void RecoveryNode::resume() {
  failures_ = 0;
  paused_until_ns_ = 0;
}

uint64_t RecoveryNode::next_probe_ns() const {
  if (parked_.empty()) return net::kForever;
  return failures_ == 0 ? 0 : std::max(paused_until_ns_, last_probe_ns_);
}

QueuedTask RecoveryNode::pop_probe() {
  QueuedTask probe = std::move(parked_.back());
  parked_.pop_back();
  // The next one follows after a pause, in case this one turns out not to need the node.
  last_probe_ns_ = worker_.now_ns() + pause_ns(failures_);
  return probe;
}

// ---- the channels --------------------------------------------------------------------------------------------------

Status RecoveryNode::expire(uint64_t now_ns) {
  channel_->expire(now_ns);
  for (auto& channel : old_channels_) channel->expire(now_ns);
  std::erase_if(old_channels_, [](const auto& channel) { return channel->idle(); });
  // kUnknownOutcome: the node has dropped the reply window of this session, and refuses the session from now on (R3,
  // idempotent requests within a session).
  return end_ == StatusCode::kFenced || end_ == StatusCode::kUnknownOutcome ? end_ : ok_status();
}

uint64_t RecoveryNode::earliest_deadline_ns() const {
  uint64_t deadline_ns = channel_->earliest_deadline_ns();
  for (const auto& channel : old_channels_) deadline_ns = std::min(deadline_ns, channel->earliest_deadline_ns());
  return deadline_ns;
}

void RecoveryNode::close(const Status& status) {
  parked_.clear();
  channel_->close(status);
}

}  // namespace loam::commit
