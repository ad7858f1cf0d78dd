// The steps of a commit as single messages over rpc::Channel. The client library would not stop in the middle of a
// commit.
#include "tests/integration/dead_test_client.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "common/base/assert.h"
#include "common/testing/eventually.h"

namespace loam::client {
namespace {

constexpr uint64_t kPatienceNs = std::chrono::nanoseconds(testing::kTestTimeout).count();

std::unique_ptr<rpc::Channel> make_channel(rpc::Worker& worker, std::string address, const wire::Attach* attach) {
  rpc::Channel::Options options;
  options.address = std::move(address);
  options.name = "a server";
  if (attach != nullptr) {
    options.startup_message = [attach = *attach](Buffer& out) { wire::encode_message(attach, 0, out); };
  }
  return std::make_unique<rpc::Channel>(worker.transport(), std::move(options), [&worker] { return worker.now_ns(); });
}

}  // namespace

/// Calls the channels at each poll, so that they meet their deadlines.
class DeadTestClient::Hook final : public rpc::PollHook {
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
Reply DeadTestClient::request(rpc::Channel& channel, const M& message) {
  std::optional<Result<Reply>> reply;
  worker_->call([&] { reply.emplace(rpc::call<Reply>(channel, message, worker_->now_ns() + kPatienceNs)); });
  LOAM_CHECK(reply.has_value(), "no fiber");
  if (!reply->ok()) std::fprintf(stderr, "%s\n", reply->status().to_string().c_str());
  LOAM_CHECK(reply->ok(), "a request of the client failed");
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
  opened_ = request<wire::OpenSessionReply>(*manager_, wire::OpenSession{"dead client", {}, 0});
}

DeadTestClient::~DeadTestClient() {
  worker_->call([&] {
    hook_->for_each([](rpc::Channel& channel) { channel.close({StatusCode::kCancelled, "dead"}); });
    // A channel may be destroyed only when it has no connection and no open request.
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
  worker_->call([&] {  // on the worker's thread, because the hook uses the channels there
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
  const auto begun = request<wire::BeginReply>(*manager_, wire::Begin{count, false});
  snapshot_ = begun.snapshot;
  return begun.first_id;
}

void DeadTestClient::update(TransactionId id, const std::vector<wire::RecordId>& records, Bytes row) {
  for (const wire::RecordId& record : records) {
    wire::Write message;
    message.transaction = id;
    message.snapshot = snapshot_;
    message.operations.push_back({wire::WriteKind::kUpdate, record, row});
    const auto reply = request<wire::WriteReply>(node(owner(record)), message);
    LOAM_CHECK(reply.results.at(0).code == StatusCode::kOk, "a write was refused");
  }
}

void DeadTestClient::revert(TransactionId id, const std::vector<wire::RecordId>& records) {
  for (const wire::RecordId& record : records) {
    const auto reply = request<wire::RevertReply>(node(owner(record)), wire::Revert{id, {record}});
    LOAM_CHECK(reply.results.at(0).code == StatusCode::kOk, "a revert was refused");
  }
}

void DeadTestClient::complete(TransactionId id, bool committed) {
  request<wire::CompleteReply>(*manager_, wire::Complete{{{id, committed}}});
}

void DeadTestClient::send_complete(TransactionId id, bool committed) {
  worker_->call([&] {
    const Status spawned = worker_->scheduler().spawn([this, id, committed] {
      // Ignores the reply, because the client is dead by then.
      static_cast<void>(rpc::call<wire::CompleteReply>(*manager_, wire::Complete{{{id, committed}}},
                                                       worker_->now_ns() + kPatienceNs));
    });
    LOAM_CHECK(spawned.ok(), "no fiber");
    // The fiber runs now and gives the message to the channel. The flush sends it.
    worker_->scheduler().yield();
    manager_->flush();
  });
}

void DeadTestClient::write_tree_node(const wire::RecordId& record, Version expected, Bytes row,
                                     const std::vector<wire::IndexIntent>& intents) {
  wire::PlainWrite message;
  const auto kind = expected == Version() ? wire::WriteKind::kInsert : wire::WriteKind::kUpdate;
  message.operations.push_back({kind, {}, record, expected, row});
  message.intents = intents;
  const auto reply = request<wire::PlainWriteReply>(node(owner(record)), message);
  LOAM_CHECK(reply.results.at(0).code == StatusCode::kOk, "a write of a tree node was refused");
}

void DeadTestClient::leave_open(TransactionId first, const std::vector<std::vector<wire::RecordId>>& records,
                                Bytes row) {
  constexpr size_t kBetweenRenewals = 50;
  for (size_t i = 0; i < records.size(); ++i) {
    // Many transactions take longer than the lease of the session.
    if (i % kBetweenRenewals == 0) request<wire::RenewSessionReply>(*manager_, wire::RenewSession{});
    update(TransactionId(first.value + i), records[i], row);
  }
}

size_t DeadTestClient::intents(const std::vector<TransactionId>& ids) {
  size_t found = 0;
  for (const wire::NodeInfo& info : opened_.catalog.nodes) {
    wire::IntentsReply page;
    do {
      page = request<wire::IntentsReply>(node(info.id), wire::Intents{SessionId(), page.end});
      found += static_cast<size_t>(std::ranges::count_if(page.intents, [&](const wire::Intent& intent) {
        return std::ranges::find(ids, intent.transaction) != ids.end();
      }));
    } while (page.more);
  }
  return found;
}

}  // namespace loam::client
