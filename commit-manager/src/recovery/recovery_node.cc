#include "commit-manager/src/recovery/recovery_node.h"

#include <algorithm>
#include <utility>

#include "common/wire/storage.h"

namespace loam::commit {

RecoveryNode::RecoveryNode(rpc::Worker& worker, wire::NodeInfo info, const RecovererOptions& options)
    : worker_(worker),
      info_(std::move(info)),
      name_("storage node " + std::to_string(info_.id.value) + " at " + info_.address),
      options_(options) {
  renew();
}

void RecoveryNode::renew() {
  if (channel_ != nullptr) old_channels_.push_back(std::move(channel_));
  end_ = ok_status();
  rpc::Channel::Options options;
  options.address = info_.address;
  options.name = name_;
  options.greeting = [this](Buffer& out) {
    wire::encode_message(wire::Attach{options_.session, options_.manager_epoch, info_.incarnation, options_.cluster}, 0,
                         out);
  };
  options.on_lost = [this](const Status& status, bool) { lost_ = status; };
  options.on_ended = [this](const Status& status) { end_ = status; };
  channel_ =
      std::make_unique<rpc::Channel>(worker_.transport(), std::move(options), [this] { return worker_.now_ns(); });
}

// ---- requests ------------------------------------------------------------------------------------------------------

Status RecoveryNode::on_reply(uint64_t call, wire::Opcode opcode, ByteReader& body) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return ok_status();  // forgotten
  const Call known = found->second;
  LOAM_RETURN_IF_ERROR(known.caller->on_reply(known.token, opcode, body));
  if (!wire::more_follow(opcode)) calls_.erase(call);
  // Unless that very answer led to a pause: a node whose records are lost answers, too, that it is unavailable.
  if (!paused()) note_answer();
  return ok_status();
}

void RecoveryNode::on_failure(uint64_t call, const Status& status, rpc::Executed executed) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  const Call known = found->second;
  calls_.erase(found);
  known.caller->on_failure(known.token, status, executed);
}

void RecoveryNode::forget(const NodeCaller* caller) {
  std::erase_if(calls_, [&](const auto& entry) {
    if (entry.second.caller != caller) return false;
    channel_->forget(entry.second.sequence);
    return true;
  });
}

void RecoveryNode::fail_calls(const Status& status) {
  const auto calls = std::exchange(calls_, {});
  for (const auto& [number, call] : calls) channel_->forget(call.sequence);
  for (const auto& [number, call] : calls) call.caller->on_failure(call.token, status, rpc::Executed::kUnknown);
}

// ---- pauses --------------------------------------------------------------------------------------------------------

Status RecoveryNode::waiting_status() const {
  return {StatusCode::kUnavailable, name_ + " is waited for: " + std::string(last_failure_.message())};
}

void RecoveryNode::note(const std::string& line) const {
  if (options_.on_note) options_.on_note(line);
}

void RecoveryNode::note_failure(const Status& status) {
  if (paused()) return;  // one of many that were under way
  last_failure_ = status;
  paused_until_ns_ = worker_.now_ns() + pause_ns(failures_);
  last_probe_ns_ = paused_until_ns_;
  if (++failures_ == kFailuresToNote) {
    note("recovery waits for " + name_ + ": " + std::string(status.message()));
  }
}

void RecoveryNode::note_answer() {
  if (failures_ >= kFailuresToNote) note(name_ + " answers again: recovery goes on");
  resume();
}

void RecoveryNode::resume() {
  failures_ = 0;
  paused_until_ns_ = 0;
}

uint64_t RecoveryNode::next_probe_ns() const {
  if (parked_.empty()) return net::kForever;
  return failures_ == 0 ? 0 : std::max(paused_until_ns_, last_probe_ns_);
}

QueuedTask RecoveryNode::take_probe() {
  const QueuedTask probe = parked_.back();
  parked_.pop_back();
  // The next one tries soon after it, in case this one turns out not to need the node.
  last_probe_ns_ = worker_.now_ns() + pause_ns(failures_);
  return probe;
}

// ---- the connection ------------------------------------------------------------------------------------------------

Status RecoveryNode::settle(uint64_t now_ns) {
  channel_->expire(now_ns);
  for (auto& channel : old_channels_) channel->expire(now_ns);
  std::erase_if(old_channels_, [](const auto& channel) { return channel->idle(); });
  if (end_ == StatusCode::kFenced) return end_;
  if (!lost_.ok()) fail_calls({StatusCode::kUnavailable, std::string(std::exchange(lost_, {}).message())});
  if (!end_.ok()) fail_calls({StatusCode::kUnavailable, std::string(end_.message())});
  return ok_status();
}

uint64_t RecoveryNode::earliest_deadline_ns() const {
  uint64_t deadline_ns = channel_->earliest_deadline_ns();
  for (const auto& channel : old_channels_) deadline_ns = std::min(deadline_ns, channel->earliest_deadline_ns());
  if (!lost_.ok() || (!end_.ok() && !calls_.empty())) return 0;
  return deadline_ns;
}

void RecoveryNode::close(const Status& status) {
  for (const auto& [number, call] : calls_) channel_->forget(call.sequence);
  calls_.clear();
  parked_.clear();
  channel_->close(status);
}

void RecoveryNode::retire(const Status& status) {
  fail_calls(status);
  channel_->close(status);
}

}  // namespace loam::commit
