// A fixture for tests: a commit manager with TCP and gRPC on the loopback interface.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <loam/commit/manager.h>

#include "commit-manager/testing/test_peer.h"
#include "common/net/tcp/tcp_transport.h"
#include "common/testing/eventually.h"
#include "loam/commit/admin.grpc.pb.h"

namespace loam::commit {

using Stub = admin::ClusterAdmin::Stub;

struct ManagerTest : ::testing::Test {
  static ManagerOptions default_options(uint32_t nodes) {
    ManagerOptions options;
    options.listen = "tcp://127.0.0.1:0";
    options.admin_listen = "127.0.0.1:0";
    options.admin_timeout_ns = 300'000'000;
    options.core.initial_nodes = nodes;
    options.core.client_lease_ns = 300'000'000;
    return options;
  }

  void start(uint32_t nodes = 0) { start(default_options(nodes)); }
  void start(const ManagerOptions& options) {
    auto started = CommitManager::start(options);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    manager = std::move(started).value();
    if (manager->admin_address().empty()) return;
    stub =
        admin::ClusterAdmin::NewStub(grpc::CreateChannel(manager->admin_address(), grpc::InsecureChannelCredentials()));
  }

  std::unique_ptr<TestPeer> connect() {
    return std::make_unique<TestPeer>(*transport, manager->address(), [this] { transport->poll(1'000'000); });
  }

  template <class Request, class Reply>
  using Method = grpc::Status (admin::ClusterAdmin::Stub::*)(grpc::ClientContext*, const Request&, Reply*);

  template <class Request, class Reply>
  grpc::StatusCode call(Method<Request, Reply> method, const Request& request, Reply& reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + testing::kTestTimeout);
    const grpc::Status status = (stub.get()->*method)(&context, request, &reply);
    message = status.error_message();
    return status.error_code();
  }

  /// Returns the statistic of this name; fails the test if it does not exist.
  static uint64_t number_of(const admin::StatisticsReply& reply, std::string_view name) {
    for (const auto& one : reply.statistics()) {
      if (one.name() == name) return one.number();
    }
    ADD_FAILURE() << "no statistic " << name;
    return 0;
  }

  static admin::CreateTableRequest accounts() {
    admin::CreateTableRequest request;
    request.set_name("accounts");
    request.set_kind(admin::TRANSACTIONAL);
    admin::Field& id = *request.add_fields();
    id.set_name("id");
    id.set_type(admin::INT64);
    admin::Field& note = *request.add_fields();
    note.set_name("note");
    note.set_type(admin::TEXT);
    note.set_nullable(true);
    return request;
  }

  std::unique_ptr<net::Transport> transport = net::make_tcp_transport().value();
  std::unique_ptr<CommitManager> manager;
  std::unique_ptr<admin::ClusterAdmin::Stub> stub;
  std::string message;
};

}  // namespace loam::commit
