// Boost.Beast has a deadline for asynchronous operations only, so the request is a chain of these in one thread.
#include "deploy/cli/src/admin/http_get.h"

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "common/program/descriptors.h"

namespace loam::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

/// One request, from the connection to the end of the reply.
class Request {
 public:
  Request(const std::string& host, const std::string& path) {
    request_.version(11);
    request_.method(http::verb::get);
    request_.target(path);
    request_.set(http::field::host, host);
    request_.keep_alive(false);
    parser_.body_limit(kMaxHttpReplyBytes);
  }

  /// Returns the error that ended the request, if any.
  error_code run(const asio::ip::tcp::resolver::results_type& addresses, std::chrono::nanoseconds timeout) {
    stream_.expires_after(timeout);
    stream_.async_connect(addresses, [this](const error_code& error, const asio::ip::tcp::endpoint&) {
      if (goes_on(error)) write();
    });
    context_.run();
    return error_;
  }

  asio::io_context& context() { return context_; }
  http::response<http::string_body>& reply() { return parser_.get(); }

 private:
  bool goes_on(const error_code& error) {
    error_ = error;
    return !error.failed();
  }
  void write() {
    http::async_write(stream_, request_, [this](const error_code& error, size_t) {
      if (goes_on(error)) read();
    });
  }
  void read() {
    http::async_read(stream_, buffer_, parser_, [this](const error_code& error, size_t) { error_ = error; });
  }

  asio::io_context context_{1};
  beast::tcp_stream stream_{context_};
  beast::flat_buffer buffer_;
  http::request<http::empty_body> request_;
  http::response_parser<http::string_body> parser_;
  error_code error_;
};

}  // namespace

Result<std::string> http_get(const std::string& address, const std::string& path, uint64_t timeout_ns) {
  LOAM_RETURN_IF_ERROR(program::ensure_descriptors(program::kClientDescriptors));
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return Status(StatusCode::kUnavailable, "the address " + address + " does not have the form host:port");
  }
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  Request request(address, path);
  error_code error;
  const auto addresses = asio::ip::tcp::resolver(request.context()).resolve(host, address.substr(colon + 1), error);
  if (!error.failed()) error = request.run(addresses, std::chrono::nanoseconds(timeout_ns));
  if (error.failed()) {
    return Status(StatusCode::kUnavailable, "GET " + path + " at " + address + " failed: " + error.message());
  }
  const unsigned status = request.reply().result_int();
  if (status == 200) return std::move(request.reply().body());
  return Status(status == 404 ? StatusCode::kNotFound : StatusCode::kUnavailable,
                "GET " + path + " at " + address + ": HTTP status " + std::to_string(status));
}

}  // namespace loam::cli
