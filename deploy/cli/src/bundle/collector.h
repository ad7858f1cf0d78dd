// What `loam support-bundle` collects.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/status.h"

namespace loam::cli {

/// What a support bundle contains.
struct BundleOptions {
  std::string manager;             ///< administration of the commit manager, host:port
  std::vector<std::string> nodes;  ///< administrations of further storage nodes, which a dead manager cannot name
  uint64_t log_lines = 0;          ///< the newest lines of each server's log
};

/// Asks the servers of a cluster one after another, and passes each file of the bundle on. A server that does not
/// answer is named in the manifest and left out. No file contains records of tables. Owner: one command. One thread.
class BundleCollector {
 public:
  /// Receives the files. An error ends the collection.
  using AddFile = std::function<Status(const std::string& name, std::string_view content)>;
  /// Receives the name of each server before it is asked.
  using Progress = std::function<void(const std::string& text)>;

  BundleCollector(BundleOptions options, AddFile add_file, Progress progress);

  /// Adds a file that the caller has.
  Status add(const std::string& name, std::string_view content);
  /// Collects from all servers. The error is that of AddFile.
  Status run();

  /// {"manager": "host:port", "files": [{"path": …, "bytes": …}, …], "not_collected": [{"path": …, "reason": …}, …]}.
  const nlohmann::ordered_json& manifest() const { return manifest_; }
  /// Whether every server has answered. A page that a server does not have counts as an answer.
  bool complete() const { return complete_; }

 private:
  Status add_text(const std::string& name, const Result<std::string>& content);
  Status add_json(const std::string& name, const Result<nlohmann::ordered_json>& content);
  void leave_out(const std::string& name, const Status& why);
  Status collect_manager(nlohmann::ordered_json& nodes);
  Status collect_node(const nlohmann::ordered_json& node);
  Status collect_server(const std::string& folder, const std::string& address, const std::string& what);

  const BundleOptions options_;
  const AddFile add_file_;
  const Progress progress_;
  nlohmann::ordered_json manifest_;
  bool complete_ = true;
};

}  // namespace loam::cli
