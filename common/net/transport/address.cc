#include "common/net/transport/address.h"

#include <charconv>

namespace loam::net {
namespace {

constexpr std::string_view kExample = "; write for example tcp://127.0.0.1:7400";

Status wrong(std::string_view text, std::string_view mistake) {
  constexpr size_t kShown = 200;  // the text may be a whole line of a file that has no addresses
  std::string message = "'" + std::string(text.substr(0, kShown)) + "' is no address: ";
  message += mistake;
  message += kExample;
  return {StatusCode::kInvalidArgument, std::move(message)};
}

bool is_host_char(char c, bool bracketed) {
  const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return word || c == '.' || c == '-' || c == '_' || (bracketed && (c == ':' || c == '%'));
}

}  // namespace

std::string_view to_string(Scheme scheme) {
  switch (scheme) {
    case Scheme::kTcp:
      return "tcp";
    case Scheme::kRdma:
      return "rdma";
    case Scheme::kSim:
      return "sim";
  }
  return "?";
}

Result<Address> Address::parse(std::string_view text) {
  Address address;
  const size_t scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos) return wrong(text, "it has no scheme");
  const std::string_view scheme = text.substr(0, scheme_end);
  if (scheme == "tcp") {
    address.scheme = Scheme::kTcp;
  } else if (scheme == "rdma") {
    address.scheme = Scheme::kRdma;
  } else if (scheme == "sim") {
    address.scheme = Scheme::kSim;
  } else {
    return wrong(text, "its scheme is not tcp, rdma or sim");
  }

  // An IPv6 number has colons of its own, so it stands in brackets. Any other host ends at its first colon.
  std::string_view rest = text.substr(scheme_end + 3);
  const bool bracketed = rest.starts_with('[');
  const size_t host_end = bracketed ? rest.find(']') : rest.find(':');
  if (host_end == std::string_view::npos) {
    return wrong(text, bracketed ? "the bracket is not closed" : "it has no port");
  }
  const std::string_view host = bracketed ? rest.substr(1, host_end - 1) : rest.substr(0, host_end);
  rest.remove_prefix(bracketed ? host_end + 1 : host_end);
  if (host.empty()) return wrong(text, "it has no host");
  if (bracketed && host.find(':') == std::string_view::npos) return wrong(text, "brackets hold an IPv6 number");
  if (host.size() > 255) return wrong(text, "its host is longer than 255 characters");
  for (const char c : host) {
    if (!is_host_char(c, bracketed)) return wrong(text, "its host has a character that no host name has");
  }
  if (!rest.starts_with(':')) return wrong(text, "it has no port");
  rest.remove_prefix(1);
  if (rest.find(':') != std::string_view::npos) return wrong(text, "an IPv6 number stands in brackets");
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), address.port);
  if (rest.empty() || error != std::errc() || end != rest.data() + rest.size()) {
    return wrong(text, "its port is not a number from 0 to 65535");
  }
  address.host = host;
  return address;
}

std::string Address::to_string() const {
  const bool bracketed = host.find(':') != std::string::npos;
  std::string text(net::to_string(scheme));
  text += bracketed ? "://[" : "://";
  text += host;
  text += bracketed ? "]:" : ":";
  text += std::to_string(port);
  return text;
}

}  // namespace loam::net
