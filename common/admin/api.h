// The status page and its JSON API: HTTP requests become calls of the server's own gRPC service.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>

#include "common/admin/http_server.h"
#include "common/admin/web_access.h"
#include "common/base/status.h"

namespace loam {

/// What a server tells the API about itself.
struct ApiOptions {
  /// Full name of the gRPC service that the API shows, such as "loam.storage.admin.NodeAdmin". Empty: no API, no page.
  std::string service;
  /// Path of the file with the token that changes need. Empty: the API refuses all changes.
  std::string token_file = {};
  /// Returns the administration address of a storage node. Set by the commit manager only.
  std::function<Result<std::string>(uint64_t node)> node_address = {};
};

/// Answers the HTTP requests for the status page and its API. A request whose header Host is not a name of this server
/// gets 403 (WebAccess::check_host), so that a page of another site can read none of them.
///
/// | request                          | reply                                                                       |
/// | -------------------------------- | --------------------------------------------------------------------------- |
/// | `GET /`, `GET /page/…`           | the files of the page, always compressed by gzip                            |
/// | `GET /api/`                      | the service, its methods, and whether changes are allowed                   |
/// | `GET /api/METHOD?field=value`    | the reply of a method without side effects                                  |
/// | `POST /api/METHOD`               | the reply of another method, whose request is the JSON object in the body   |
/// | `GET /api/node/ID/METHOD?…`      | the reply of a storage node to `GET /api/METHOD?…`; the commit manager only |
///
/// There is no code for a single method: the descriptors of Protocol Buffers give the methods with their
/// messages, and the option `idempotency_level = NO_SIDE_EFFECTS` in the .proto file tells which ones only read. A call
/// goes through an in-process channel to the same handler that gRPC clients reach. Names in JSON are those of the
/// .proto file. Numbers of 64 bits are texts there, as Protocol Buffers prescribe. The reply to a failed call is an
/// object with "code" and "error".
///
/// Owner: GrpcServer. Threads: answer() and guard() from any; cancel() from one.
class Api {
 public:
  /// The gRPC server outlives the calls of answer().
  Api(grpc::Server& server, const std::string& listen_address, ApiOptions options);
  ~Api();
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  /// Answers one request; no value if the path is not one of the above. May wait for kCallTimeout.
  std::optional<HttpReply> answer(const HttpRequest& request);
  /// Returns `page()`, or 403 if the header Host of the request is not a name of this server.
  HttpReply guard(const HttpRequest& request, const std::function<HttpReply()>& page) const;
  /// Ends all waits. Later requests get 503.
  void cancel();

  /// Time limit of one call, and of a request to a storage node.
  static constexpr std::chrono::milliseconds kCallTimeout{5'000};

 private:
  HttpReply index() const;
  HttpReply call(const HttpRequest& request, std::string_view method);
  HttpReply run(const google::protobuf::MethodDescriptor& method, const google::protobuf::Message& request);
  HttpReply ask_node(const HttpRequest& request, std::string_view node_and_method);

  const ApiOptions options_;
  const WebAccess access_;
  const google::protobuf::ServiceDescriptor* const service_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::mutex mutex_;
  std::set<grpc::ClientContext*> calls_;  // guarded by mutex_; the running calls
  std::atomic<bool> cancelled_{false};    // written under mutex_; requests to storage nodes read it without
};

}  // namespace loam
