// One HTTP request, asynchronous (Boost.Beast) on an event loop of its own, because only asynchronous operations have a
// time limit.
#include "common/admin/http_get.h"

#include <cstring>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/lexical_cast.hpp>

#include "common/admin/listeners.h"

namespace loam {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using namespace std::chrono_literals;

/// Interval at which a waiting request looks at `cancelled`.
constexpr auto kCancelCheck = 20ms;

/// One request. Its callbacks run inside of run().
class Exchange {
 public:
  explicit Exchange(const std::string& target) {
    request_.version(11);
    request_.method(http::verb::get);
    request_.target(target);
    request_.set(http::field::connection, "close");
    parser_.body_limit(kMaxFetchedBytes);
  }

  /// Returns the error that ended the request, if any.
  error_code run(const std::vector<asio::ip::tcp::endpoint>& endpoints, std::chrono::milliseconds timeout,
                 const std::atomic<bool>* cancelled) {
    stream_.expires_after(timeout);
    stream_.async_connect(endpoints, [this](const error_code& error, const asio::ip::tcp::endpoint& reached) {
      if (goes_on(error)) write(reached);
    });
    // relaxed: the flag orders nothing, it only ends the wait
    while (context_.run_for(kCancelCheck) > 0 || !context_.stopped()) {
      if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed)) return asio::error::operation_aborted;
    }
    return error_;
  }

  HttpReply reply() {
    const auto& message = parser_.get();
    const auto type = message[http::field::content_type];
    return {message.result_int(), std::string(type.data(), type.size()), message.body()};
  }

 private:
  bool goes_on(const error_code& error) {
    error_ = error;
    return !error.failed();
  }
  void write(const asio::ip::tcp::endpoint& reached) {
    // The host is an IP address, because a server refuses names that it does not have (WebAccess::check_host).
    request_.set(http::field::host, boost::lexical_cast<std::string>(reached));
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

Result<HttpReply> http_get(const std::string& address, const std::string& target, std::chrono::milliseconds timeout,
                           const std::atomic<bool>* cancelled) {
  LOAM_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, resolve_listen_addresses(address));
  std::vector<asio::ip::tcp::endpoint> endpoints;
  for (const SocketAddress& one : addresses) {
    asio::ip::tcp::endpoint endpoint;
    endpoint.resize(one.size);
    std::memcpy(endpoint.data(), &one.storage, one.size);
    endpoints.push_back(endpoint);
  }
  Exchange exchange(target);
  if (const error_code error = exchange.run(endpoints, timeout, cancelled); error.failed()) {
    return Status(StatusCode::kUnavailable,
                  "GET " + target + ": the administration at " + address + " does not answer: " + error.message());
  }
  return exchange.reply();
}

}  // namespace loam
