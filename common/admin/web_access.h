// Checks that protect the status page and its API from other web pages in the operator's browser.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/admin/http_server.h"
#include "common/base/status.h"

namespace loam {

/// Decides which HTTP requests may read more than metrics and probes, and which ones may change something.
///
/// Browsers protect a server on the loopback interface or in a closed network only by the name of its origin. Two
/// checks keep a page of another site from reading replies and from causing changes:
/// * A host name of another site may be resolved to this server (DNS rebinding). So the header Host must have an IP
///   address, `localhost`, the name of this machine, or the host of the listening address.
/// * A change needs the bearer token of the token file. Its Origin, if a browser sent one, must be this server, and its
///   type must be application/json, which a form of another site cannot send.
///
/// Owner: Api. Threads: any.
class WebAccess {
 public:
  /// `listen_address` is the "host:port" that the operator gave. `token_file` is empty if changes are not allowed.
  WebAccess(const std::string& listen_address, std::string token_file);

  /// Ok if a request with this header Host may read the page, the API, the options and the log; else kInvalidArgument.
  Status check_host(std::string_view host) const;
  /// No value if the request may change something; the reply that refuses it otherwise. The token file is read at each
  /// call, so that an operator can replace the token while the server runs.
  std::optional<HttpReply> refuse_change(const HttpRequest& request) const;
  /// Whether a token file was given.
  bool allows_changes() const { return !token_file_.empty(); }

 private:
  const std::string listen_host_;
  const std::string machine_;  // name of this machine
  const std::string token_file_;
};

/// Lower bound on the length of a token, so that it cannot be guessed.
inline constexpr size_t kMinTokenLength = 16;

/// Returns the token in a file: its contents without white space at the end. kInvalidArgument: the file cannot be read,
/// other users may read it, or the token has fewer than kMinTokenLength or more than 1,024 characters.
Result<std::string> read_token(const std::string& file);

}  // namespace loam
