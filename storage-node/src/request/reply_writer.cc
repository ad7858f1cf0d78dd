// Encodes the results of a batch as replies. send() (reply_writer.h) also stores the replies to changes in the reply
// window.
#include "storage-node/src/request/reply_writer.h"

#include <algorithm>
#include <string>
#include <utility>

namespace loam::storage {

using wire::Opcode;

void ReplyWriter::send_encoded(Peer& peer, Bytes reply) {
  Status sent = peer.send(reply);
  // The peer does not read its replies. The client handles lost replies as it does after any lost connection.
  if (!sent.ok()) peer.close(std::move(sent));
}

void ReplyWriter::refuse(Peer& peer, uint64_t sequence, Status status, uint64_t retry_after_ns) {
  send(peer, sequence, wire::Error{std::move(status), retry_after_ns});
}

void ReplyWriter::send_results(Peer& peer, const RegistryView& view, const MemoryReport& report,
                               const RequestBatch& batch, RequestBatch::Request& request) {
  switch (request.reply) {
    case Opcode::kReadReply:
      return send_read_results<wire::ReadReply>(peer, batch, request);
    case Opcode::kPlainReadReply:
      return send_read_results<wire::PlainReadReply>(peer, batch, request);
    case Opcode::kWriteReply:
      return send_write_results<wire::WriteReply>(peer, view, report, batch, request);
    case Opcode::kPlainWriteReply:
      return send_write_results<wire::PlainWriteReply>(peer, view, report, batch, request);
    default:
      return send_write_results<wire::RevertReply>(peer, view, report, batch, request);
  }
}

template <class Reply>
void ReplyWriter::send_read_results(Peer& peer, const RequestBatch& batch, const RequestBatch::Request& request) {
  Reply reply;
  // Use the memory of an earlier reply, so that a batch allocates nothing after warm-up.
  reply.results.swap(read_results_);
  reply.results.clear();
  projected_rows_.clear();
  size_t row_bytes = 0;
  for (const RequestBatch::Item& item : batch.items(request)) {
    wire::ReadResult& result = reply.results.emplace_back();
    result.code = item.code;
    if (!item.executed()) continue;
    const PointOperation& operation = batch.operation(item);
    result.code = operation.code;
    result.version = operation.version;
    result.row = operation.result;
    const bool projected = request.projection != nullptr && result.code == StatusCode::kOk;
    const size_t size = projected ? request.projection->projected_size(result.row) : result.row.size();
    row_bytes += size;
    // The first row of a reply always fits, so that the client makes progress. Later rows must stay within the limit.
    if (row_bytes > kMaxReplyRowBytes && size < row_bytes) {
      result = {StatusCode::kOverloaded, {}, {}};
    } else if (projected) {
      result.row = project(*request.projection, result.row, size);
    }
  }
  send(peer, request.sequence, reply);
  reply.results.swap(read_results_);
}

Bytes ReplyWriter::project(const Projection& projection, Bytes row, size_t size) {
  // A reply never needs more than this capacity. So the buffer does not move, and the rows that the reply refers to
  // stay where they are.
  if (projected_rows_.capacity() == 0) projected_rows_.reserve(kMaxReplyRowBytes + kMaxRowBytes);
  const size_t at = projected_rows_.size();
  projected_rows_.resize(at + size);
  projection.project(row, projected_rows_.data() + at);
  return Bytes(projected_rows_).subspan(at);
}

template <class Reply>
void ReplyWriter::send_write_results(Peer& peer, const RegistryView& view, const MemoryReport& report,
                                     const RequestBatch& batch, RequestBatch::Request& request) {
  Reply reply;
  reply.results.swap(write_results_);
  reply.results.clear();
  for (const RequestBatch::Item& item : batch.items(request)) {
    wire::WriteResult& result = reply.results.emplace_back();
    result.code = item.code;
    if (!item.executed()) continue;
    const PointOperation& operation = batch.operation(item);
    result.code = operation.code;
    result.version = operation.version;
    if (result.code == StatusCode::kInvalidArgument && operation.projection != nullptr && result.version == Version()) {
      request.set_detail(reply.results.size() - 1, (*view.find(operation.table->id()))->info.name,
                         "with its unchanged fields the new row would have more than the " +
                             std::to_string(operation.table->max_row_bytes()) + " bytes that are allowed");
    }
  }
  if constexpr (requires { reply.detail; }) reply.detail = request.detail;
  encode(peer, request.sequence, reply);
  if constexpr (requires { reply.detail; }) {
    const auto full = [](const wire::WriteResult& result) { return result.code == StatusCode::kNoSpace; };
    if (reply.detail.empty() && std::ranges::any_of(reply.results, full)) {
      // The reply window has room for small replies only, so it keeps the reply without the text.
      reply.detail = report.text();
      reply_.clear();
      wire::encode_message(reply, request.sequence, reply_);
    }
  }
  send_encoded(peer, reply_);
  reply.results.swap(write_results_);
}

}  // namespace loam::storage
