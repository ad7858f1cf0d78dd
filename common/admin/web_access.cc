// The checks of host, origin and token.
#include "common/admin/web_access.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <fstream>
#include <utility>

#include <arpa/inet.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"

namespace loam {
namespace {

constexpr size_t kMaxTokenLength = 1'024;

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// Returns the host of "host", "host:port" or "[address]:port", in lower case and without brackets.
std::string host_of(std::string_view text) {
  // Without the zone of a link-local address, such as "fe80::1%eth0".
  if (text.starts_with('[')) return lower(text.substr(1, text.find_first_of("]%") - 1));
  return lower(text.substr(0, text.find(':')));
}

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? lower(name.data()) : std::string();
}

bool is_ip_address(const std::string& host) {
  std::array<std::byte, sizeof(in6_addr)> ignored{};
  return ::inet_pton(AF_INET, host.c_str(), ignored.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), ignored.data()) == 1;
}

/// Compares in a time that does not depend on where the texts differ.
bool same_secret(std::string_view left, std::string_view right) {
  unsigned difference = left.size() == right.size() ? 0 : 1;
  for (size_t i = 0; i < left.size(); ++i) {
    difference |=
        static_cast<unsigned char>(left[i]) ^ static_cast<unsigned char>(right[right.empty() ? 0 : i % right.size()]);
  }
  return difference == 0;
}

HttpReply refuse(unsigned status, std::string why) {
  return {status, "text/plain; charset=utf-8", std::move(why) + "\n"};
}

}  // namespace

WebAccess::WebAccess(const std::string& listen_address, std::string token_file)
    : listen_host_(host_of(listen_address)), machine_(machine_name()), token_file_(std::move(token_file)) {}

Status WebAccess::check_host(std::string_view host) const {
  const std::string name = host_of(host);
  if (!name.empty() && (name == "localhost" || name == machine_ || name == listen_host_ || is_ip_address(name))) {
    return ok_status();
  }
  return {StatusCode::kInvalidArgument,
          "the host name of this request is not one of this server; use its IP address, localhost, or the host name " +
              machine_};
}

std::optional<HttpReply> WebAccess::refuse_change(const HttpRequest& request) const {
  if (!allows_changes()) {
    return refuse(
        403, "changes by HTTP are switched off; start the server with --admin-token-file, or use the program loam");
  }
  if (!request.origin.empty() && lower(request.origin) != "http://" + lower(request.host)) {
    return refuse(403, "a page of another origin may not change anything here");
  }
  if (!lower(request.content_type).starts_with("application/json")) {
    return refuse(415, "a change needs the header Content-Type: application/json");
  }
  const Result<std::string> token = read_token(token_file_);
  if (!token.ok()) {
    log_warning("admin.token_unusable", "a change by HTTP is refused: " + std::string(token.status().message()));
    return refuse(500, "the token file of this server cannot be used; its log says why");
  }
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = request.authorization;
  if (given.starts_with(kBearer) && same_secret(given.substr(kBearer.size()), *token)) return std::nullopt;
  log_warning("admin.change_refused", "a change by HTTP is refused: its token is missing or wrong");
  HttpReply reply =
      refuse(401, "a change needs the header Authorization: Bearer TOKEN, with the token of the token file");
  reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

Result<std::string> read_token(const std::string& file) {
  const auto wrong = [&](const std::string& why) {
    return Status(StatusCode::kInvalidArgument, "token file " + file + ": " + why);
  };
  struct stat status{};
  std::ifstream in(file);
  if (!in || ::stat(file.c_str(), &status) != 0) return wrong("cannot be read");
  if ((status.st_mode & S_IRWXO) != 0) return wrong("other users have access to it; run chmod o= on it");
  std::string token(kMaxTokenLength + 2, '\0');  // one more than allowed, and the end of the line
  in.read(token.data(), static_cast<std::streamsize>(token.size()));
  token.resize(static_cast<size_t>(in.gcount()));
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back())) != 0) token.pop_back();
  if (token.size() < kMinTokenLength || token.size() > kMaxTokenLength) {
    return wrong("the token has " + std::to_string(token.size()) + " characters; it needs " +
                 std::to_string(kMinTokenLength) + " to " + std::to_string(kMaxTokenLength) +
                 ", for example from: openssl rand -hex 32");
  }
  return token;
}

}  // namespace loam
