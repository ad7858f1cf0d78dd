// The mapping of HTTP requests to calls of a gRPC service.
#include "common/admin/api.h"

#include <charconv>
#include <chrono>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "common/admin/http_get.h"
#include "common/admin/page_files.h"
#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/quoted.h"

namespace loam {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;
using google::protobuf::MethodOptions;
using google::protobuf::Reflection;

constexpr std::string_view kApi = "/api/";
constexpr std::string_view kNode = "node/";

bool only_reads(const MethodDescriptor& method) {
  return method.options().idempotency_level() == MethodOptions::NO_SIDE_EFFECTS;
}

HttpReply json(unsigned status, std::string body) { return {status, "application/json", std::move(body) + "\n"}; }

HttpReply failure(unsigned status, std::string_view code, std::string_view message) {
  return json(status, R"({"code":)" + quoted(code) + R"(,"error":)" + quoted(message) + "}");
}

HttpReply not_allowed(const char* allowed) {
  HttpReply reply = failure(405, "INVALID_ARGUMENT", std::string("only ") + allowed + " is answered here");
  reply.headers.emplace_back("Allow", allowed);
  return reply;
}

HttpReply failure(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
      return failure(400, "INVALID_ARGUMENT", status.error_message());
    case grpc::StatusCode::NOT_FOUND:
      return failure(404, "NOT_FOUND", status.error_message());
    case grpc::StatusCode::ALREADY_EXISTS:
      return failure(409, "ALREADY_EXISTS", status.error_message());
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return failure(503, "RESOURCE_EXHAUSTED", status.error_message());
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
      return failure(503, "UNAVAILABLE", status.error_message());
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return failure(504, "DEADLINE_EXCEEDED", status.error_message());
    default:
      return failure(500, "INTERNAL", status.error_message());
  }
}

/// Decodes %XX and '+' of a query. No value: the text is malformed.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    unsigned byte = 0;
    const char* const digits = text.data() + i + 1;
    if (i + 2 >= text.size() || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) return std::nullopt;
    result += static_cast<char>(byte);
    i += 2;
  }
  return result;
}

template <class Number>
std::optional<Number> to_number(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Sets one field of a request. False: the value does not fit the type of the field.
bool set_field(Message& message, const FieldDescriptor& field, const std::string& value) {
  const Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) return false;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection.SetBool(&message, &field, value == "true");
      return value == "true" || value == "false";
    case FieldDescriptor::CPPTYPE_UINT32: {
      const auto number = to_number<uint32_t>(value);
      reflection.SetUInt32(&message, &field, number.value_or(0));
      return number.has_value();
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const auto number = to_number<uint64_t>(value);
      reflection.SetUInt64(&message, &field, number.value_or(0));
      return number.has_value();
    }
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetString(&message, &field, value);
      return true;
    default:
      return false;
  }
}

/// Sets the fields that a query such as "max=20&with_system=true" names.
Status read_query(std::string_view query, Message& message) {
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    const size_t equals = part.find('=');
    const std::string name(part.substr(0, equals));
    const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(name);
    const auto value = percent_decoded(equals == std::string_view::npos ? "" : part.substr(equals + 1));
    if (field == nullptr || !value || !set_field(message, *field, *value)) {
      std::string known;
      for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
        known += " " + message.GetDescriptor()->field(i)->name();
      }
      return {StatusCode::kInvalidArgument, "field '" + name + "' is unknown or has a wrong value; known fields are:" +
                                                (known.empty() ? " none" : known)};
    }
  }
  return ok_status();
}

std::unique_ptr<Message> new_message(const Descriptor* type) {
  return std::unique_ptr<Message>(MessageFactory::generated_factory()->GetPrototype(type)->New());
}

/// Reads and writes Protocol Buffers' JSON with the names of the .proto file.
std::string to_json(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  LOAM_CHECK(status.ok(), "a reply of Loam's own services has a JSON form");
  return text;
}

/// A channel to a server of this process.
std::shared_ptr<grpc::Channel> own_channel(grpc::Server& server) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // gRPC's default of 4 MiB is too small for the statistics of many tables
  return server.InProcessChannel(arguments);
}

bool is_get(const HttpRequest& request) { return request.method == "GET" || request.method == "HEAD"; }

/// Header fields of all replies: they keep the browser from running or loading anything that this server did not send.
void protect(HttpReply& reply) {
  reply.headers.emplace_back(
      "Content-Security-Policy",
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
      "form-action 'none'; frame-ancestors 'none'");
  reply.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  reply.headers.emplace_back("Referrer-Policy", "no-referrer");
  reply.headers.emplace_back("X-Frame-Options", "DENY");
}

}  // namespace

Api::Api(grpc::Server& server, const std::string& listen_address, ApiOptions options)
    : options_(std::move(options)),
      access_(listen_address, options_.token_file),
      service_(google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(options_.service)),
      channel_(own_channel(server)) {}

Api::~Api() = default;

HttpReply Api::guard(const HttpRequest& request, const std::function<HttpReply()>& page) const {
  const Status host = access_.check_host(request.host);
  HttpReply reply = host.ok() ? page() : failure(403, "INVALID_ARGUMENT", host.message());
  protect(reply);
  return reply;
}

std::optional<HttpReply> Api::answer(const HttpRequest& request) {
  if (service_ == nullptr) return std::nullopt;
  const std::string_view path = request.path;
  if (path.starts_with(kApi)) return guard(request, [&] { return call(request, path.substr(kApi.size())); });
  const PageFile* const file = find_page_file(path);
  if (file == nullptr) return std::nullopt;
  return guard(request, [&] {
    if (!is_get(request)) return not_allowed("GET, HEAD");
    return HttpReply{200, std::string(file->content_type), std::string(file->gzip), {{"Content-Encoding", "gzip"}}};
  });
}

HttpReply Api::index() const {
  std::string reads;
  std::string changes;
  for (int i = 0; i < service_->method_count(); ++i) {
    const MethodDescriptor& method = *service_->method(i);
    std::string& list = only_reads(method) ? reads : changes;
    list += (list.empty() ? "" : ",") + quoted(method.name());
  }
  return json(200, R"({"service":)" + quoted(service_->full_name()) + R"(,"version":")" LOAM_VERSION R"(","reads":[)" +
                       reads + R"(],"changes":[)" + changes + R"(],"changes_allowed":)" +
                       (access_.allows_changes() ? "true" : "false") + "}");
}

HttpReply Api::call(const HttpRequest& request, std::string_view method_name) {
  const bool reads = is_get(request);
  if (method_name.empty()) return reads ? index() : not_allowed("GET, HEAD");
  if (method_name.starts_with(kNode) && options_.node_address) {
    return reads ? ask_node(request, method_name.substr(kNode.size())) : not_allowed("GET, HEAD");
  }
  const MethodDescriptor* const method = service_->FindMethodByName(std::string(method_name));
  if (method == nullptr) {
    return failure(404, "NOT_FOUND", "the service has no such method; GET /api/ lists its methods");
  }
  const std::unique_ptr<Message> message = new_message(method->input_type());
  if (only_reads(*method)) {
    if (!reads) return not_allowed("GET, HEAD");
    if (const Status status = read_query(request.query, *message); !status.ok()) {
      return failure(400, "INVALID_ARGUMENT", status.message());
    }
    return run(*method, *message);
  }
  if (request.method != "POST") return not_allowed("POST");
  if (auto refused = access_.refuse_change(request)) return std::move(*refused);
  if (const auto status = google::protobuf::util::JsonStringToMessage(request.body, message.get()); !status.ok()) {
    return failure(400, "INVALID_ARGUMENT",
                   "the body is no JSON object of the type " + method->input_type()->full_name() + ": " +
                       std::string(status.message()));
  }
  HttpReply reply = run(*method, *message);
  log_info("admin.change", "change by HTTP: " + method->name() + ", reply " + std::to_string(reply.status),
           {{"method", method->name()}, {"status", std::to_string(reply.status)}});
  return reply;
}

HttpReply Api::run(const MethodDescriptor& method, const Message& request) {
  const std::unique_ptr<Message> reply = new_message(method.output_type());
  const grpc::Slice request_slice(request.SerializeAsString());
  const grpc::ByteBuffer request_bytes(&request_slice, 1);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  {
    const std::lock_guard lock(mutex_);
    // relaxed: written under the mutex
    if (cancelled_.load(std::memory_order_relaxed)) return failure(503, "UNAVAILABLE", "the server is stopping");
    calls_.insert(&context);
  }
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel_);
  const std::string path = "/" + service_->full_name() + "/" + method.name();
  const auto call = stub.PrepareUnaryCall(&context, path, request_bytes, &queue);
  call->StartCall();
  grpc::ByteBuffer reply_bytes;
  grpc::Status status;
  call->Finish(&reply_bytes, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  {
    const std::lock_guard lock(mutex_);
    calls_.erase(&context);
  }
  if (!status.ok()) return failure(status);
  grpc::Slice reply_slice;
  LOAM_CHECK(reply_bytes.DumpToSingleSlice(&reply_slice).ok() &&
                 reply->ParseFromArray(reply_slice.begin(), static_cast<int>(reply_slice.size())),
             "the handler is in this process and sends the type that its descriptor names");
  return json(200, to_json(*reply));
}

HttpReply Api::ask_node(const HttpRequest& request, std::string_view node_and_method) {
  const size_t slash = node_and_method.find('/');
  const auto node = to_number<uint64_t>(node_and_method.substr(0, slash));
  if (!node || slash == std::string_view::npos) {
    return failure(404, "NOT_FOUND", "the form of this path is /api/node/ID/METHOD");
  }
  const Result<std::string> address = options_.node_address(*node);
  if (!address.ok()) return failure(404, "NOT_FOUND", address.status().message());
  const std::string target = std::string(kApi) + std::string(node_and_method.substr(slash + 1)) +
                             (request.query.empty() ? "" : "?") + request.query;
  Result<HttpReply> reply = http_get(*address, target, kCallTimeout, &cancelled_);
  if (!reply.ok()) return failure(504, "UNAVAILABLE", reply.status().message());
  return std::move(*reply);
}

void Api::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_.store(true, std::memory_order_relaxed);  // relaxed: readers only stop waiting
  for (grpc::ClientContext* const call : calls_) call->TryCancel();
}

}  // namespace loam
