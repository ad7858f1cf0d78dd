#include "tests/integration/dead_test_client.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "common/base/assert.h"
#include "common/testing/patience.h"
#include "common/wire/system_tables.h"

namespace loam::client {
namespace {

constexpr uint64_t kPatienceNs = std::chrono::nanoseconds(testing::kPatience).count();

std::unique_ptr<rpc::Channel> make_channel(rpc::Worker& worker, std::string address, const wire::Attach* attach) {
  rpc::Channel::Options options;
  options.address = std::move(address);
  options.name = "a server";
  if (attach != nullptr) {
    options.greeting = [attach = *attach](Buffer& out) { wire::encode_message(attach, 0, out); };
  }
  return std::make_unique<rpc::Channel>(worker.transport(), std::move(options), [&worker] { return worker.now_ns(); });
}

}  // namespace

/// Lets the links meet their deadlines.
class DeadTestClient::Hook final : public rpc::RoundHook {
 public:
  explicit Hook(DeadTestClient& client) : client_(client) {}
  uint64_t before_poll() override {
    uint64_t deadline_ns = net::kForever;
    for_each([&](rpc::Channel& channel) { deadline_ns = std::min(deadline_ns, channel.earliest_deadline_ns()); });
    return deadline_ns;
  }
  void after_poll(uint64_t now_ns) override {
    for_each([&](rpc::Channel& channel) { channel.expire(now_ns); });
  }
  template <class Function>
  void for_each(Function function) {
    if (client_.manager_ != nullptr) function(*client_.manager_);
    for (auto& [id, channel] : client_.nodes_) function(*channel);
  }

 private:
  DeadTestClient& client_;
};

template <wire::Message Reply, wire::Message M>
Reply DeadTestClient::ask(rpc::Channel& channel, const M& message) {
  std::optional<Result<Reply>> reply;
  worker_->call([&] { reply.emplace(rpc::call<Reply>(channel, message, worker_->now_ns() + kPatienceNs)); });
  LOAM_CHECK(reply.has_value(), "no fiber");
  if (!reply->ok()) std::fprintf(stderr, "%s\n", reply->status().to_string().c_str());
  LOAM_CHECK(reply->ok(), "a step of the client fails");
  return std::move(*reply).value();
}

DeadTestClient::DeadTestClient(const std::string& manager_address) {
  rpc::WorkerOptions options;
  options.thread_name = "dead-client";
  options.max_fibers = 16;
  options.stack_bytes = 64 * 1024;
  worker_ = rpc::Worker::start(options).value();
  hook_ = std::make_unique<Hook>(*this);
  worker_->call([&] {
    manager_ = make_channel(*worker_, manager_address, nullptr);
    worker_->set_hook(hook_.get());
  });
  opened_ = ask<wire::SessionOpened>(*manager_, wire::OpenSession{"dead client", {}, 0});
}

DeadTestClient::~DeadTestClient() {
  worker_->call([&] {
    hook_->for_each([](rpc::Channel& channel) { channel.close({StatusCode::kCancelled, "dead"}); });
    bool idle = false;
    while (!idle) {
      worker_->scheduler().sleep_for(1'000'000);
      idle = true;
      hook_->for_each([&](rpc::Channel& channel) { idle = idle && channel.idle(); });
    }
    worker_->set_hook(nullptr);
    manager_.reset();
    nodes_.clear();
  });
  worker_->stop();
}

rpc::Channel& DeadTestClient::node(NodeId id) {
  rpc::Channel* found = nullptr;
  worker_->call([&] {  // the hook goes through the links there
    const auto made = nodes_.find(id);
    if (made != nodes_.end()) {
      found = made->second.get();
      return;
    }
    const auto info = std::find_if(opened_.catalog.nodes.begin(), opened_.catalog.nodes.end(),
                                   [&](const wire::NodeInfo& node) { return node.id == id; });
    const wire::Attach attach{opened_.session, opened_.manager_epoch, info->incarnation};
    found = nodes_.emplace(id, make_channel(*worker_, info->address, &attach)).first->second.get();
  });
  return *found;
}

// ---- steps ---------------------------------------------------------------------------------------------------------

TransactionId DeadTestClient::begin(uint32_t count) {
  const auto begun = ask<wire::Begun>(*manager_, wire::Begin{count, false});
  snapshot_ = begun.snapshot;
  return begun.first_id;
}

wire::WriteResult DeadTestClient::write_undo_record(TransactionId id, wire::WriteKind kind) {
  Undo& undo = undo_[id];
  const wire::RecordId record{wire::kTransactionTableId, Key(id.value)};
  wire::PlainWrite message;
  const Bytes row = kind == wire::WriteKind::kInsert ? Bytes(undo.row) : Bytes();
  message.operations.push_back({kind, {}, record, undo.version, row, {}, static_cast<uint8_t>(undo.state)});
  const auto reply = ask<wire::PlainWriteReply>(node(owner(record)), message);
  LOAM_CHECK(reply.results.at(0).code == StatusCode::kOk, "an undo record is refused");
  undo.version = reply.results[0].version;
  return reply.results[0];
}

void DeadTestClient::insert_undo_record(TransactionId id, const std::vector<wire::RecordId>& records,
                                        const std::vector<wire::IndexChange>& changes) {
  undo_[id].row = wire::UndoRecord{opened_.session, undo_[id].state, records, changes}.encode().value();
  write_undo_record(id, wire::WriteKind::kInsert);
}

void DeadTestClient::change_undo_record(TransactionId id, wire::UndoState state) {
  undo_[id].state = state;
  write_undo_record(id, wire::WriteKind::kMark);
}

void DeadTestClient::remove_undo_record(TransactionId id) { write_undo_record(id, wire::WriteKind::kRemove); }

void DeadTestClient::update(TransactionId id, const std::vector<wire::RecordId>& records, Bytes row) {
  for (const wire::RecordId& record : records) {
    wire::Write message;
    message.transaction = id;
    message.snapshot = snapshot_;
    message.operations.push_back({wire::WriteKind::kUpdate, record, row});
    const auto reply = ask<wire::WriteReply>(node(owner(record)), message);
    LOAM_CHECK(reply.results.at(0).code == StatusCode::kOk, "a write is refused");
  }
}

void DeadTestClient::revert(TransactionId id, const std::vector<wire::RecordId>& records) {
  for (const wire::RecordId& record : records) {
    const auto reply = ask<wire::RevertReply>(node(owner(record)), wire::Revert{id, {record}});
    LOAM_CHECK(reply.results.at(0).code == StatusCode::kOk, "a revert is refused");
  }
}

void DeadTestClient::complete(TransactionId id, bool committed) {
  ask<wire::Completed>(*manager_, wire::Complete{{{id, committed}}});
}

void DeadTestClient::leave_open(TransactionId first, const std::vector<std::vector<wire::RecordId>>& records,
                                Bytes row) {
  std::map<NodeId, wire::PlainWrite> undo;
  std::vector<Buffer> rows;
  for (size_t i = 0; i < records.size(); ++i) {
    rows.push_back(wire::UndoRecord{opened_.session, wire::UndoState::kPending, records[i], {}}.encode().value());
    const wire::RecordId record{wire::kTransactionTableId, Key(first.value + i)};
    undo[owner(record)].operations.push_back({wire::WriteKind::kInsert, {}, record, Version(), rows.back()});
  }
  for (const auto& [id, message] : undo) {
    for (const auto& result : ask<wire::PlainWriteReply>(node(id), message).results) {
      LOAM_CHECK(result.code == StatusCode::kOk, "an undo record is refused");
    }
  }
  constexpr size_t kBetweenRenewals = 50;
  for (size_t i = 0; i < records.size(); ++i) {
    if (i % kBetweenRenewals == 0) ask<wire::SessionRenewed>(*manager_, wire::RenewSession{});
    update(TransactionId(first.value + i), records[i], row);
  }
}

size_t DeadTestClient::undo_records(const std::vector<TransactionId>& ids) {
  size_t found = 0;
  for (const TransactionId id : ids) {
    const wire::RecordId record{wire::kTransactionTableId, Key(id.value)};
    const auto reply = ask<wire::PlainReadReply>(node(owner(record)), wire::PlainRead{{record}});
    found += reply.results.at(0).code == StatusCode::kOk ? 1 : 0;
  }
  return found;
}

}  // namespace loam::client
