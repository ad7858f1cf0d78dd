// The client of a storage node. It speaks the wire protocol without the client library, which would add its own work
// to the load generator.
#include "benchmarks/peers/node.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "benchmarks/harness/measure.h"
#include "common/base/assert.h"
#include "common/net/tcp/tcp_transport.h"
#include "common/schema/row.h"

namespace loam::bench {
namespace {

constexpr uint64_t kPatienceNs = 30'000'000'000;
constexpr uint64_t kPollNs = 100'000'000;
/// Number of records of one Write while the transactional table is filled.
constexpr size_t kLoadBatch = 128;

void check_ok(const Status& status) {
  if (!status.ok()) throw std::runtime_error("storage node: " + status.to_string());
}
template <class T>
T check_ok(Result<T> result) {
  check_ok(result.status());
  return std::move(result).value();
}

/// An error message for an unexpected code of a result; "" if the code is right.
std::string wrong_code(StatusCode code) {
  return code == StatusCode::kOk ? std::string() : "it answers " + std::string(to_string(code));
}

}  // namespace

NodePeer::NodePeer(const Options& options, const Content& content) : content_(content), versions_(options.records) {
  net::TransportOptions transport_options;
  transport_options.spin_ns = 0;  // so that its CPU time tells how busy the load generator is
  transport_ = check_ok(net::make_tcp_transport(transport_options));
  // Builds one row. Every later row is a copy with another key and another value at the same offsets.
  const Schema schema = check_ok(Schema::make({{"key", FieldType::kText}, {"value", FieldType::kBlob}}));
  RowBuilder builder(schema);
  check_ok(builder.set_text(0, std::string(kKeyBytes, 'k')));
  check_ok(builder.set_blob(1, Buffer(content.value_bytes())));
  const Bytes row = check_ok(builder.finish());
  row_.assign(row.begin(), row.end());
  const RowView view(schema, row);
  key_at_ = static_cast<size_t>(view.blob(0).data() - row.data());
  value_at_ = static_cast<size_t>(view.blob(1).data() - row.data());
  // Opens the sessions first, then the tables, and attaches to the node last: it needs the catalog, which the reply
  // to OpenSession contains.
  for (size_t i = 0; i < options.connections; ++i) {
    Channel& manager = connect(managers_, options.manager);
    manager.session = call<wire::OpenSessionReply>(manager, wire::OpenSession{"loam-bench", {}, 0});
  }
  transactional_table_ = make_table(TableKind::kTransactional, schema);
  plain_table_ = make_table(TableKind::kNonTransactional, schema);
  for (Channel& manager : managers_) {
    const auto& cluster = manager.session.catalog;
    if (cluster.nodes.size() != 1) throw std::runtime_error("the cluster under load has one storage node");
    Channel& node = connect(nodes_, cluster.nodes.front().address);
    call<wire::AttachReply>(
        node, wire::Attach{manager.session.session, manager.session.manager_epoch, cluster.nodes.front().incarnation});
  }
}

NodePeer::Channel& NodePeer::connect(std::deque<Channel>& to, const std::string& address) {
  Channel& channel = to.emplace_back();
  channel.number = to.size() - 1;
  channel.connection = check_ok(transport_->connect(check_ok(net::Address::parse(address)), *this));
  channel.connection->set_context(&channel);
  return channel;
}

template <wire::Message Reply, wire::Message M>
Reply NodePeer::call(Channel& channel, const M& message) {
  channel.answer.clear();
  channel.call_pending = true;
  put_message(channel, message);
  const uint64_t until_ns = wall_ns() + kPatienceNs;
  while (channel.call_pending && wall_ns() < until_ns) {
    transport_->poll(kPollNs);
    throw_failure();
  }
  ByteReader reader(channel.answer);
  wire::Envelope envelope;
  check_ok(wire::decode_envelope(reader, envelope));
  if (envelope.opcode == wire::Opcode::kError) {
    wire::Error error;
    check_ok(wire::decode_body(reader, error));
    check_ok(error.status);
  }
  Reply reply;
  if (envelope.opcode != Reply::kOpcode) throw std::runtime_error("storage node: an answer of the wrong kind");
  check_ok(wire::decode_body(reader, reply));
  if constexpr (requires { reply.results; }) {
    for (const auto& result : reply.results) check_ok(Status(result.code, ""));
  }
  return reply;
}

wire::TableInfo NodePeer::make_table(TableKind kind, const Schema& schema) {
  const std::string name = kind == TableKind::kTransactional ? "transactional" : "plain";
  return call<wire::CreateTableReply>(managers_.front(), wire::CreateTable{name, kind, schema}).table;
}

void NodePeer::load() {
  Channel& manager = managers_.front();
  // One transaction inserts all records. The snapshot of each connection is taken after its completion and therefore
  // contains it.
  const auto begun = call<wire::BeginReply>(manager, wire::Begin{1, false});
  wire::Write write{begun.first_id, begun.snapshot, {}};
  std::vector<Buffer> rows;
  for (size_t at = 0; at < versions_.size(); at += kLoadBatch) {
    rows.clear();
    write.operations.clear();
    for (size_t i = at; i < std::min(versions_.size(), at + kLoadBatch); ++i) {
      const Bytes row = row_of(static_cast<uint32_t>(i), 0);
      rows.emplace_back(row.begin(), row.end());
      write.operations.push_back({wire::WriteKind::kInsert, {transactional_table_.id, Key(i)}, rows.back()});
    }
    call<wire::WriteReply>(nodes_.front(), write);
  }
  call<wire::CompleteReply>(manager, wire::Complete{{{begun.first_id, true}}});
  for (size_t i = 0; i < managers_.size(); ++i) {
    nodes_[i].read.snapshot = call<wire::BeginReply>(managers_[i], wire::Begin{0, true}).snapshot;
    nodes_[i].read.records.resize(1);
  }
}

Bytes NodePeer::row_of(uint32_t record, uint32_t stamp) {
  write_key(record, reinterpret_cast<char*>(row_.data() + key_at_));
  content_.write_value(record, stamp, reinterpret_cast<char*>(row_.data() + value_at_));
  return row_;
}

bool NodePeer::is_row(const Operation& operation, Bytes row) const {
  if (row.size() != row_.size()) return false;
  char key[kKeyBytes];
  write_key(operation.record, key);
  return equal(row.first(key_at_), Bytes(row_).first(key_at_)) &&
         as_text(row.subspan(key_at_, kKeyBytes)) == std::string_view(key, kKeyBytes) &&
         content_.is_value(operation.record, operation.stamp, as_text(row.subspan(value_at_, content_.value_bytes())));
}

template <wire::Message M>
void NodePeer::put_message(Channel& channel, const M& message) {
  message_.clear();
  wire::encode_message(message, channel.next_sequence++, message_);
  Status sent = channel.connection->send(message_);
  if (!sent.ok()) fail(sent.to_string());  // may be called by a callback of the transport
}

void NodePeer::send(size_t connection, std::span<const Operation> batch) {
  Channel& channel = nodes_[connection];
  channel.batch.assign(batch.begin(), batch.end());
  channel.next = 0;
  channel.first_sequence = channel.next_sequence;
  for (const Operation& operation : batch) send_one(channel, operation);
}

void NodePeer::send_one(Channel& channel, const Operation& operation) {
  if (transactional_) {
    LOAM_CHECK(!operation.put, "the transactional table is only read");
    channel.read.records[0] = {transactional_table_.id, Key(operation.record)};
    return put_message(channel, channel.read);
  }
  if (!operation.put) {
    plain_read_.records.resize(1);
    plain_read_.records[0] = {plain_table_.id, Key(operation.record)};
    return put_message(channel, plain_read_);
  }
  // R21, exact-version writes: the put names the version that the last put of this record returned.
  const Version expected = versions_[operation.record];
  plain_write_.operations.resize(1);
  plain_write_.operations[0] = {expected == Version() ? wire::WriteKind::kInsert : wire::WriteKind::kUpdate,
                                {},
                                {plain_table_.id, Key(operation.record)},
                                expected,
                                row_of(operation.record, operation.stamp)};
  put_message(channel, plain_write_);
}

void NodePeer::poll(uint64_t timeout_ns, const std::function<void(size_t, size_t)>& answered) {
  answered_ = &answered;
  transport_->poll(timeout_ns);
  answered_ = nullptr;
  throw_failure();
}

void NodePeer::on_messages(net::Connection& connection, std::span<const Bytes> messages) {
  Channel& channel = *connection.context<Channel>();
  // call() waits for exactly one reply. All other messages are replies to a batch.
  if (channel.call_pending) {
    channel.answer.assign(messages.front().begin(), messages.front().end());
    channel.call_pending = false;
    return;
  }
  for (const Bytes message : messages) check(channel, message);
  if (answered_ != nullptr && failure_.empty()) (*answered_)(channel.number, messages.size());
}

void NodePeer::check(Channel& channel, Bytes message) {
  if (channel.next == channel.batch.size()) return fail("a reply without a request");
  const Operation& operation = channel.batch[channel.next];
  ByteReader reader(message);
  wire::Envelope envelope;
  const Status status = wire::decode_envelope(reader, envelope);
  if (!status.ok()) return fail(status.to_string());
  if (envelope.sequence != channel.first_sequence + channel.next) return fail("answers out of order");
  ++channel.next;
  std::string what = wrong(operation, envelope, reader);
  if (!what.empty()) fail(what + ", record " + std::to_string(operation.record));
}

std::string NodePeer::wrong(const Operation& operation, const wire::Envelope& envelope, ByteReader& reader) {
  if (envelope.opcode == wire::Opcode::kError) {
    wire::Error error;
    return wire::decode_body(reader, error).ok() ? error.status.to_string() : "a malformed error";
  }
  const auto read = [&](auto& reply) -> std::string {
    if (!wire::decode_body(reader, reply).ok() || reply.results.size() != 1) return "a malformed answer to a get";
    if (reply.results[0].code != StatusCode::kOk) return wrong_code(reply.results[0].code);
    return is_row(operation, reply.results[0].row) ? "" : "a wrong row";
  };
  if (!operation.put && transactional_ && envelope.opcode == wire::ReadReply::kOpcode) return read(read_reply_);
  if (!operation.put && envelope.opcode == wire::PlainReadReply::kOpcode) return read(plain_read_reply_);
  if (!operation.put || envelope.opcode != wire::PlainWriteReply::kOpcode) return "an answer to another question";
  if (!wire::decode_body(reader, plain_write_reply_).ok() || plain_write_reply_.results.size() != 1) {
    return "a malformed answer to a put";
  }
  versions_[operation.record] = plain_write_reply_.results[0].version;
  return wrong_code(plain_write_reply_.results[0].code);
}

void NodePeer::on_closed(net::Connection&, const Status& status) { fail("closed: " + status.to_string()); }

void NodePeer::fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

void NodePeer::throw_failure() const {
  if (!failure_.empty()) throw std::runtime_error("storage node: " + failure_);
}

}  // namespace loam::bench
