// The HTTP/1.1 server of an administration port: one thread with asynchronous connections (Boost.Beast), and workers
// for handlers that wait.
#include "common/admin/http_server.h"

#include <array>
#include <atomic>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace loam {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

// The first bytes of the connection preface of HTTP/2 (RFC 9113, section 3.4). No method of HTTP/1.1 begins so.
constexpr std::string_view kHttp2Preface = "PRI ";

asio::ip::tcp protocol_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  const bool v6 = ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 && address.ss_family == AF_INET6;
  return v6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4();
}

// The lowest priority but one: a scrape or a status page must not delay requests on the same core.
void lower_priority() { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10); }

template <class Message>
HttpRequest to_request(Message& message) {
  const auto text = [](const auto& view) { return std::string(view.data(), view.size()); };
  const std::string target = text(message.target());
  const size_t query = target.find('?');
  HttpRequest request;
  request.method = text(message.method_string());
  request.path = target.substr(0, query);
  if (query != std::string::npos) request.query = target.substr(query + 1);
  request.host = text(message[http::field::host]);
  request.origin = text(message[http::field::origin]);
  request.authorization = text(message[http::field::authorization]);
  request.content_type = text(message[http::field::content_type]);
  request.body = std::move(message.body());
  return request;
}

}  // namespace

struct HttpServer::Impl {
  Impl(Routes the_routes, Http2 the_http2, const HttpLimits& the_limits, Other the_other)
      : routes(std::move(the_routes)), http2(std::move(the_http2)), limits(the_limits), other(std::move(the_other)) {}

  const Routes routes;
  const Http2 http2;
  const HttpLimits limits;
  const Other other;
  size_t connections = 0;  // used by the thread only; the connections that `context` still holds lower it
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::thread thread;
  // Destroyed before `context`, because a task that never ran owns a connection.
  asio::thread_pool workers{kWorkers};
};

namespace {

/// One connection. Its pending operation keeps it alive.
template <class Server>
class HttpConnection : public std::enable_shared_from_this<HttpConnection<Server>> {
 public:
  HttpConnection(Server& server, asio::ip::tcp::socket socket) : server_(server), stream_(std::move(socket)) {
    ++server_.connections;
  }
  ~HttpConnection() { --server_.connections; }

  /// Phase 1: the first bytes decide between HTTP/2 and HTTP/1.1.
  void sort() {
    // The socket counts as readable when these bytes are complete, so no wait ends with a part of them.
    set_low_mark(static_cast<int>(kHttp2Preface.size()));
    // The time-out of Beast's streams covers reads and writes, but no wait. So a timer closes the socket.
    timer_.expires_after(server_.limits.first_bytes);
    timer_.async_wait([self = this->shared_from_this()](const error_code& error) {
      if (!error) self->stream_.socket().close();
    });
    stream_.socket().async_wait(asio::socket_base::wait_read,
                                [self = this->shared_from_this()](const error_code& error) {
                                  if (!error) self->sort_by_first_bytes();
                                });
  }

 private:
  void sort_by_first_bytes() {
    std::array<char, kHttp2Preface.size()> first{};
    const ssize_t got = ::recv(stream_.socket().native_handle(), first.data(), first.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got <= 0) return;  // closed by the peer
    timer_.cancel();
    set_low_mark(1);
    if (std::string_view(first.data(), static_cast<size_t>(got)) != kHttp2Preface) return read();
    error_code error;
    const int fd = stream_.socket().release(error);
    if (!error) server_.http2(fd);
  }

  void set_low_mark(int bytes) {
    static_cast<void>(::setsockopt(stream_.socket().native_handle(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)));
  }

  /// Phase 2: reads one request.
  void read() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(server_.limits.header_bytes));
    parser_->body_limit(server_.limits.body_bytes);
    stream_.expires_after(server_.limits.request);
    http::async_read(stream_, buffer_, *parser_,
                     [self = this->shared_from_this()](const error_code& error, size_t) { self->on_read(error); });
  }

  void on_read(const error_code& error) {
    // Other errors than those of HTTP are of the network, or the end of the connection. Nothing is sent then.
    if (error == http::error::end_of_stream || error == http::error::partial_message) return;
    if (error && error.category() != http::make_error_code(http::error::bad_method).category()) return;
    if (error) return write({400, "text/plain; charset=utf-8", "bad request: " + error.message() + "\n"}, false, false);
    HttpRequest request = to_request(parser_->get());
    const bool keep_alive = parser_->get().keep_alive();
    if (server_.other && !server_.routes.contains(request.path)) return ask_worker(std::move(request), keep_alive);
    write(answer(request), request.method == "HEAD", keep_alive);
  }

  HttpReply answer(const HttpRequest& request) const {
    if (request.method != "HEAD" && request.method != "GET") {
      return {405, "text/plain; charset=utf-8", "only GET and HEAD are answered here\n", {{"Allow", "GET, HEAD"}}};
    }
    const auto route = server_.routes.find(request.path);
    if (route != server_.routes.end()) return route->second(request);
    std::string known;
    for (const auto& [path, handler] : server_.routes) known += " " + path;
    return {404, "text/plain; charset=utf-8", "unknown path; known are:" + known + "\n"};
  }

  /// Runs `other` on a worker. The connection returns to the server's thread, which alone uses and destroys it.
  void ask_worker(HttpRequest request, bool keep_alive) {
    asio::post(server_.workers, [self = this->shared_from_this(), request = std::move(request), keep_alive]() mutable {
      lower_priority();
      std::optional<HttpReply> reply = self->server_.other(request);
      if (!reply) reply = self->answer(request);
      const bool head = request.method == "HEAD";
      asio::io_context& context = self->server_.context;
      asio::post(context, [self = std::move(self), reply = std::move(*reply), head, keep_alive]() mutable {
        self->write(std::move(reply), head, keep_alive);
      });
    });
  }

  /// Phase 3: writes the reply, then reads the next request or closes.
  void write(HttpReply reply, bool head, bool keep_alive) {
    response_.emplace();
    response_->version(11);
    response_->result(reply.status);
    response_->set(http::field::content_type, reply.content_type);
    response_->set(http::field::cache_control, "no-store");
    response_->set("X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : reply.headers) response_->set(beast::string_view(name.data(), name.size()), value);
    response_->keep_alive(keep_alive);
    const size_t size = reply.body.size();
    if (!head) response_->body() = std::move(reply.body);
    response_->content_length(size);
    stream_.expires_after(server_.limits.reply);
    serializer_.emplace(*response_);
    http::async_write(stream_, *serializer_,
                      [self = this->shared_from_this(), keep_alive](const error_code& error, size_t) {
                        if (!error && keep_alive) return self->read();
                        error_code ignored;
                        self->stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
                      });
  }

  Server& server_;
  beast::tcp_stream stream_;
  asio::steady_timer timer_{stream_.get_executor()};
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
};

}  // namespace

HttpServer::HttpServer(Routes routes, Http2 http2, const HttpLimits& limits, Other other)
    : impl_(std::make_unique<Impl>(std::move(routes), std::move(http2), limits, std::move(other))) {
  impl_->thread = std::thread([impl = impl_.get()] {
    lower_priority();
    impl->context.run();
  });
  pthread_setname_np(impl_->thread.native_handle(), "loam-http");
}

HttpServer::~HttpServer() { stop(); }

void HttpServer::take(int fd) {
  asio::ip::tcp::socket socket(impl_->context);
  error_code error;
  if (socket.assign(protocol_of(fd), fd, error).failed()) {
    ::close(fd);
    return;
  }
  asio::post(impl_->context, [impl = impl_.get(), socket = std::move(socket)]() mutable {
    if (impl->connections >= impl->limits.connections) return;  // the socket closes itself
    std::make_shared<HttpConnection<Impl>>(*impl, std::move(socket))->sort();
  });
}

void HttpServer::stop() {
  if (!impl_->thread.joinable()) return;
  impl_->context.stop();
  impl_->thread.join();
  impl_->workers.stop();
  impl_->workers.join();
}

}  // namespace loam
