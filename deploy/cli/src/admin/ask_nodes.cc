#include "deploy/cli/src/admin/ask_nodes.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "deploy/cli/src/admin/admin_client.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Upper bound on the storage nodes that are asked at the same time.
constexpr size_t kAskedAtOnce = 16;

}  // namespace

std::vector<NodeReply> ask_nodes(const Json& nodes,
                                 const std::function<Result<Json>(const std::string& address)>& ask) {
  std::vector<NodeReply> replies;
  std::vector<std::string> addresses;
  for (const Json& node : nodes) {
    if (!node.value("live", false)) continue;
    replies.push_back({number(node, "id"), Status(StatusCode::kUnavailable, "it runs without administration")});
    addresses.push_back(text(node, "admin_address"));
  }
  std::atomic<size_t> next{0};
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < std::min(kAskedAtOnce, replies.size()); ++i) {
    threads.emplace_back([&] {
      // Relaxed: each thread takes another number; the join orders the replies.
      for (size_t at; (at = next.fetch_add(1, std::memory_order_relaxed)) < replies.size();) {
        if (!addresses[at].empty()) replies[at].reply = ask(addresses[at]);
      }
    });
  }
  threads.clear();  // joins them
  return replies;
}

}  // namespace loam::cli
