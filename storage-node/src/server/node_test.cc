#include <gtest/gtest.h>

#include <loam/storage/node.h>

#include "common/net/tcp/tcp_transport.h"

namespace loam::storage {
namespace {

/// A commit manager that accepts connections and sends scripted replies.
class ScriptedManager : public net::Handler {
 public:
  ScriptedManager() : transport_(net::make_tcp_transport().value()) {
    listener_ = transport_->listen(net::Address::parse("tcp://127.0.0.1:0").value(), *this).value();
  }
  std::string address() const { return listener_->address().to_string(); }
  net::Transport& transport() { return *transport_; }

  void on_messages(net::Connection&, std::span<const Bytes>) override {}
  void on_closed(net::Connection&, const Status&) override {}

 private:
  std::unique_ptr<net::Transport> transport_;
  net::Listener* listener_ = nullptr;
};

NodeOptions small() {
  NodeOptions options;
  options.memory_bytes = 16u << 20;
  options.page_bytes = 256u << 10;
  options.huge_pages = false;
  options.register_timeout_ns = 100'000'000;
  options.admin_listen.clear();  // gRPC is not built for ThreadSanitizer
  return options;
}

Status start(const NodeOptions& options) { return StorageNode::start(options).status(); }

TEST(StorageNode, OptionsOutOfRangeAreNamed) {
  NodeOptions options = small();
  options.page_bytes = 3000;
  EXPECT_TRUE(start(options) == StatusCode::kInvalidArgument);
  EXPECT_NE(start(options).message().find("option page "), std::string_view::npos);
  options = small();
  options.network_threads = 0;
  EXPECT_NE(start(options).message().find("network-threads"), std::string_view::npos);
  for (const unsigned group : {0u, 65u}) {
    options = small();
    options.batch_group = group;
    EXPECT_NE(start(options).message().find("batch-group"), std::string_view::npos);
  }
  options = small();
  options.spin_ns = 1'000'000'000;
  EXPECT_TRUE(options.check().ok());
  ++options.spin_ns;
  EXPECT_NE(start(options).message().find("option spin "), std::string_view::npos);
  for (const uint64_t limit_ns : {uint64_t{9'999'999}, uint64_t{3'600'000'000'001}}) {
    options = small();
    options.scan_stall_limit_ns = limit_ns;
    EXPECT_NE(start(options).message().find("scan-stall-limit"), std::string_view::npos);
  }
  for (const double share : {0.0, 1.0}) {
    options = small();
    options.query_memory_share = share;
    EXPECT_NE(start(options).message().find("query-memory-share"), std::string_view::npos);
  }
  options = small();
  options.network_cores = "0-";
  EXPECT_NE(start(options).message().find("network-cores"), std::string_view::npos);
  options = small();
  options.listen = "127.0.0.1";
  EXPECT_TRUE(start(options) == StatusCode::kInvalidArgument) << start(options).to_string();
}

TEST(StorageNode, TooLittleMemoryIsAClearError) {
  NodeOptions options = small();
  options.memory_bytes = 1u << 20;  // four pages
  const Status status = start(options);
  EXPECT_TRUE(status == StatusCode::kNoSpace) << status.to_string();
  EXPECT_FALSE(status.message().empty());
  options = small();
  options.memory_bytes = 4u << 20;  // 16 pages, and not enough of them for records
  options.query_memory_share = 0.75;
  const Status queries = start(options);
  EXPECT_TRUE(queries == StatusCode::kNoSpace) << queries.to_string();
  EXPECT_NE(queries.message().find("--query-memory-share reserves 3145728"), std::string_view::npos)
      << queries.to_string();
  options = small();
  options.memory_bytes = uint64_t{1} << 42;  // 4 TiB
  EXPECT_TRUE(start(options) == StatusCode::kNoSpace) << start(options).to_string();
}

TEST(StorageNode, PortInUseNamesThePort) {
  const ScriptedManager other;
  NodeOptions options = small();
  options.listen = other.address();
  const Status status = start(options);
  EXPECT_TRUE(status == StatusCode::kUnavailable) << status.to_string();
  const std::string port = other.address().substr(other.address().rfind(':') + 1);
  EXPECT_NE(status.message().find(port), std::string_view::npos) << status.to_string();
}

TEST(StorageNode, AbsentCommitManagerIsNamed) {
  NodeOptions options = small();
  {
    const ScriptedManager gone;
    options.manager = gone.address();
  }
  const Status refused = start(options);
  EXPECT_TRUE(refused == StatusCode::kUnavailable) << refused.to_string();
  EXPECT_NE(refused.message().find(options.manager), std::string_view::npos) << refused.to_string();

  const ScriptedManager silent;  // listens, and is never polled
  options.manager = silent.address();
  EXPECT_TRUE(start(options) == StatusCode::kTimeout) << start(options).to_string();
}

}  // namespace
}  // namespace loam::storage
