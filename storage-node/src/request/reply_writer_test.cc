#include "storage-node/src/request/reply_writer.h"

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <string>
#include <vector>

#include "common/testing/random_schema.h"
#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

using wire::Opcode;

Buffer bytes_of(std::initializer_list<unsigned> values) {
  Buffer bytes;
  for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

/// A reply writer, and a batch whose operations the test answers itself.
class ReplyWriterTest : public NodeFixture {
 protected:
  void SetUp() override {
    enter_service();
    {
      const EpochGuard guard(*epoch_thread);
      view_ = registry->view();
    }
    peer.attach(sessions.attach(SessionId(5), peer.id()).value());
  }

  /// An executed operation on the table of accounts, with its outcome.
  PointOperation outcome(StatusCode code, Version version = {}, Bytes result = {}) const {
    PointOperation operation;
    operation.table = (*view_.find(kAccounts))->table.get();
    operation.code = code;
    operation.version = version;
    operation.result = result;
    return operation;
  }
  /// Sends the results of the newest request.
  void send(RequestBatch::Request& request) {
    writer_.send_results(peer, view_, registry->memory_report(), batch_, request);
  }
  /// Sends the rows as the results of one read, and returns the decoded reply.
  wire::ReadReply read_reply(uint64_t sequence, const std::vector<Bytes>& rows) {
    RequestBatch::Request& request = batch_.add_request(Opcode::kReadReply, sequence);
    for (const Bytes row : rows) batch_.add(request, outcome(StatusCode::kOk, Version(1), row));
    send(request);
    return peer.answer<wire::ReadReply>(sequence);
  }
  wire::ReplyWindow& open_window() {
    EXPECT_TRUE(sessions.open_window(*peer.session()).ok());
    return peer.session()->window();
  }

  RecordingPeer peer{1};
  RegistryView view_;  // a copy, which keeps the tables alive
  RequestBatch batch_;
  ReplyWriter writer_;
};

TEST_F(ReplyWriterTest, RefusalHasTheReasonAndTheRetryTimeInTheOrderOfTheProtocol) {
  writer_.refuse(peer, 300, {StatusCode::kOverloaded, "full"}, 5);
  // Opcode, sequence as a varint, code in little-endian order, length of the text, text, time.
  EXPECT_EQ(peer.sent, std::vector<Buffer>{bytes_of({1, 0xac, 0x02, 11, 0, 4, 'f', 'u', 'l', 'l', 5})});
  writer_.refuse(peer, 301, {StatusCode::kInvalidArgument, "wrong"});
  EXPECT_EQ(peer.answer<wire::Error>(301).status.message(), "wrong");
  EXPECT_EQ(peer.answer<wire::Error>(301).retry_after_ns, 0u) << "no advice";
  EXPECT_TRUE(peer.closed.ok());
}

TEST_F(ReplyWriterTest, ReadReplyHasTheBytesOfTheProtocol) {
  RequestBatch::Request& request = batch_.add_request(Opcode::kReadReply, 2);
  const Buffer row = bytes_of({0xaa, 0xbb, 0xcc});
  batch_.add(request, outcome(StatusCode::kOk, Version(0x0102), row));
  batch_.add(request, StatusCode::kWrongShard);
  send(request);
  // Opcode, sequence, number of results; code, version of 8 bytes in little-endian order, length of the row, row; code.
  EXPECT_EQ(peer.sent,
            std::vector<Buffer>{bytes_of({13, 2, 2, 0, 0, 0x02, 0x01, 0, 0, 0, 0, 0, 0, 3, 0xaa, 0xbb, 0xcc, 15, 0})});
}

TEST_F(ReplyWriterTest, WriteReplyHasTheBytesOfTheProtocol) {
  RequestBatch::Request& request = batch_.add_request(Opcode::kWriteReply, 2);
  batch_.add(request, outcome(StatusCode::kConflict, Version(0x0102)));
  request.detail = "why";
  send(request);
  EXPECT_EQ(peer.sent, std::vector<Buffer>{bytes_of({15, 2, 1, 1, 0, 0x02, 0x01, 0, 0, 0, 0, 0, 0, 3, 'w', 'h', 'y'})});
}

TEST_F(ReplyWriterTest, ResultsHaveTheOrderOfTheItems) {
  const Buffer one = row(1);
  const Buffer two = row(2);
  RequestBatch::Request& request = batch_.add_request(Opcode::kPlainReadReply, 7);
  batch_.add(request, outcome(StatusCode::kOk, Version(11), two));
  batch_.add(request, StatusCode::kNoSuchTable);
  batch_.add(request, outcome(StatusCode::kNotFound));
  batch_.add(request, outcome(StatusCode::kOk, Version(12), one));
  send(request);
  const auto reply = peer.answer<wire::PlainReadReply>(7);
  ASSERT_EQ(reply.results.size(), 4u);
  EXPECT_EQ(reply.results[0].code, StatusCode::kOk);
  EXPECT_EQ(reply.results[0].version, Version(11));
  EXPECT_EQ(value(reply.results[0].row), 2);
  EXPECT_EQ(reply.results[1].code, StatusCode::kNoSuchTable);
  EXPECT_EQ(reply.results[2].code, StatusCode::kNotFound);
  EXPECT_EQ(reply.results[3].version, Version(12));
  EXPECT_EQ(value(reply.results[3].row), 1);
}

TEST_F(ReplyWriterTest, EachRequestGetsTheKindOfReplyThatItNames) {
  uint64_t sequence = 0;
  for (const Opcode reply : {Opcode::kReadReply, Opcode::kPlainReadReply, Opcode::kWriteReply, Opcode::kPlainWriteReply,
                             Opcode::kRevertReply}) {
    RequestBatch::Request& request = batch_.add_request(reply, ++sequence);
    for (uint64_t i = 0; i < sequence; ++i) batch_.add(request, outcome(StatusCode::kConflict, Version(9)));
    send(request);
  }
  EXPECT_EQ(peer.answer<wire::ReadReply>(1).results.size(), 1u);
  EXPECT_EQ(peer.answer<wire::PlainReadReply>(2).results.size(), 2u);
  EXPECT_EQ(peer.answer<wire::WriteReply>(3).results.size(), 3u) << "no result of the requests before";
  EXPECT_EQ(peer.answer<wire::PlainWriteReply>(4).results.size(), 4u);
  const auto reverted = peer.answer<wire::RevertReply>(5);
  ASSERT_EQ(reverted.results.size(), 5u);
  EXPECT_EQ(reverted.results[4].code, StatusCode::kConflict);
  EXPECT_EQ(reverted.results[4].version, Version(9));
}

TEST_F(ReplyWriterTest, ProjectedReadsReturnTheNamedFieldsOfEachRow) {
  const Schema people = Schema::make({{"id", FieldType::kInt64, false}, {"name", FieldType::kText, false}}).value();
  const std::vector<uint16_t> numbers = {1};
  const Projection projection = Projection::make(people, FieldNumbers(numbers)).value();
  RequestBatch::Request& request = batch_.add_request(Opcode::kReadReply, 1);
  request.projection = &projection;
  std::deque<Buffer> rows;
  for (int64_t i = 0; i < 100; ++i) {
    rows.push_back(loam::testing::build_row(people, {Value::int64(i), Value::text(std::to_string(i))}));
    batch_.add(request, outcome(StatusCode::kOk, Version(1), rows.back()));
    batch_.add(request, outcome(StatusCode::kNotFound));
  }
  send(request);
  const auto reply = peer.answer<wire::ReadReply>(1);
  ASSERT_EQ(reply.results.size(), 200u);
  const Schema names = loam::testing::projected_schema(people, numbers);
  for (size_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(validate_row(names, reply.results[2 * i].row).ok()) << i;
    EXPECT_EQ(RowView(names, reply.results[2 * i].row).text(0), std::to_string(i));
    EXPECT_EQ(reply.results[2 * i + 1].code, StatusCode::kNotFound);
  }
}

TEST_F(ReplyWriterTest, RowsBeyondTheLimitOfAReplyAreOverloaded) {
  const Buffer half(kMaxReplyRowBytes / 2);
  const Buffer one(1);
  const auto exact = read_reply(1, {half, half});
  EXPECT_EQ(exact.results[0].row.size(), half.size());
  EXPECT_EQ(exact.results[1].row.size(), half.size()) << "exactly at the limit";
  const auto beyond = read_reply(2, {half, half, one, one});
  EXPECT_EQ(beyond.results[1].code, StatusCode::kOk) << "each reply counts from 0";
  for (size_t i = 2; i < 4; ++i) {
    EXPECT_EQ(beyond.results[i].code, StatusCode::kOverloaded) << i;
    EXPECT_TRUE(beyond.results[i].row.empty()) << i;
  }
  EXPECT_LT(peer.sent[1].size(), kMaxReplyRowBytes + 100) << "no refused row is sent";
}

TEST_F(ReplyWriterTest, FirstRowIsSentAlsoBeyondTheLimit) {
  const Buffer large(kMaxReplyRowBytes + 1);
  const Buffer one(1);
  const auto reply = read_reply(1, {large, one});
  EXPECT_EQ(reply.results[0].code, StatusCode::kOk) << "otherwise the client would repeat the read for ever";
  EXPECT_EQ(reply.results[0].row.size(), large.size());
  EXPECT_EQ(reply.results[1].code, StatusCode::kOverloaded);
}

TEST_F(ReplyWriterTest, LimitCountsProjectedBytes) {
  const Schema people = Schema::make({{"id", FieldType::kInt64, false}, {"photo", FieldType::kBlob, false}}).value();
  const Buffer large = loam::testing::build_row(people, {Value::int64(7), Value::blob(Buffer(kMaxRowBytes - 100))});
  const auto overloaded = [&](uint64_t sequence, const std::vector<uint16_t>& numbers) {
    const Projection projection = Projection::make(people, FieldNumbers(numbers)).value();
    RequestBatch::Request& request = batch_.add_request(Opcode::kReadReply, sequence);
    request.projection = &projection;
    for (int i = 0; i < 8; ++i) batch_.add(request, outcome(StatusCode::kOk, Version(1), large));
    send(request);
    const auto reply = peer.answer<wire::ReadReply>(sequence);
    return std::ranges::count(reply.results, StatusCode::kOverloaded, &wire::ReadResult::code);
  };
  EXPECT_EQ(overloaded(1, {0}), 0);
  EXPECT_EQ(overloaded(2, {1}), 4) << "four of these rows fit";
}

TEST_F(ReplyWriterTest, WriteReplyExplainsAnUpdateThatWouldMakeTheRowTooLarge) {
  const std::vector<uint16_t> numbers = {0};
  const Projection projection = Projection::make((*view_.find(kAccounts))->info.schema, FieldNumbers(numbers)).value();
  PointOperation large = outcome(StatusCode::kInvalidArgument);
  large.projection = &projection;
  RequestBatch::Request& request = batch_.add_request(Opcode::kWriteReply, 1);
  batch_.add(request, outcome(StatusCode::kInvalidArgument));  // a whole row needs no explanation by the writer
  batch_.add(request, large);
  batch_.add(request, large);
  send(request);
  const std::string limit = std::to_string(large.table->max_row_bytes());
  EXPECT_EQ(peer.answer<wire::WriteReply>(1).detail,
            "operation 1 on table accounts: with its unchanged fields the new row would have more than the " + limit +
                " bytes that are allowed");

  RequestBatch::Request& explained = batch_.add_request(Opcode::kPlainWriteReply, 2);
  explained.set_detail(0, "accounts", "an earlier fault");
  batch_.add(explained, StatusCode::kInvalidArgument);
  batch_.add(explained, large);
  send(explained);
  EXPECT_EQ(peer.answer<wire::PlainWriteReply>(2).detail, "operation 0 on table accounts: an earlier fault");
}

TEST_F(ReplyWriterTest, RepliesToChangesAndRefusalsEnterTheReplyWindow) {
  wire::ReplyWindow& window = open_window();
  Buffer stored;
  uint64_t sequence = 0;
  for (const Opcode reply : {Opcode::kWriteReply, Opcode::kPlainWriteReply, Opcode::kRevertReply}) {
    ASSERT_EQ(window.look_up(++sequence, stored), wire::ReplyWindow::LookupResult::kNew);
    RequestBatch::Request& request = batch_.add_request(reply, sequence);
    batch_.add(request, outcome(StatusCode::kOk, Version(sequence)));
    send(request);
    EXPECT_EQ(window.look_up(sequence, stored), wire::ReplyWindow::LookupResult::kAnswered);
    EXPECT_EQ(stored, peer.sent.back());
  }
  ASSERT_EQ(window.look_up(++sequence, stored), wire::ReplyWindow::LookupResult::kNew);
  writer_.refuse(peer, sequence, {StatusCode::kInvalidArgument, "wrong"});
  EXPECT_EQ(window.look_up(sequence, stored), wire::ReplyWindow::LookupResult::kAnswered);
  EXPECT_EQ(stored, peer.sent.back());
}

TEST_F(ReplyWriterTest, RefusalsForWantOfMemorySayWhatFillsIt) {
  wire::ReplyWindow& window = open_window();
  Buffer stored;
  uint64_t sequence = 0;
  const auto refuse = [&] {
    EXPECT_EQ(window.look_up(++sequence, stored), wire::ReplyWindow::LookupResult::kNew);
    RequestBatch::Request& request = batch_.add_request(Opcode::kWriteReply, sequence);
    batch_.add(request, outcome(StatusCode::kOk, Version(7)));
    batch_.add(request, outcome(StatusCode::kNoSpace));
    return &request;
  };
  send(*refuse());
  EXPECT_EQ(peer.answer<wire::WriteReply>(sequence).detail, "") << "there is no report yet";
  registry->memory_report().set(*epoch_thread, "an old text");
  registry->memory_report().set(*epoch_thread, "table accounts holds it");
  send(*refuse());
  EXPECT_EQ(peer.answer<wire::WriteReply>(sequence).detail, "table accounts holds it");
  EXPECT_EQ(window.look_up(sequence, stored), wire::ReplyWindow::LookupResult::kAnswered);
  EXPECT_LT(stored.size() + 20, peer.sent.back().size()) << "the window keeps the reply without the text";
  RequestBatch::Request* explained = refuse();
  explained->detail = "an earlier fault";
  send(*explained);
  EXPECT_EQ(peer.answer<wire::WriteReply>(sequence).detail, "an earlier fault");
  RequestBatch::Request& deferred = batch_.add_request(Opcode::kPlainWriteReply, ++sequence);
  batch_.add(deferred, StatusCode::kNoSpace);
  send(deferred);
  EXPECT_EQ(peer.answer<wire::PlainWriteReply>(sequence).detail, "table accounts holds it") << "not executed";
}

TEST_F(ReplyWriterTest, RepliesToReadsDoNotEnterTheReplyWindow) {
  wire::ReplyWindow& window = open_window();
  Buffer stored;
  uint64_t sequence = 0;
  for (const Opcode reply : {Opcode::kReadReply, Opcode::kPlainReadReply}) {
    ASSERT_EQ(window.look_up(++sequence, stored), wire::ReplyWindow::LookupResult::kNew);
    RequestBatch::Request& request = batch_.add_request(reply, sequence);
    send(request);
    EXPECT_EQ(peer.sent.size(), sequence);
    EXPECT_EQ(window.look_up(sequence, stored), wire::ReplyWindow::LookupResult::kRunning) << "nothing was stored";
  }
}

TEST_F(ReplyWriterTest, PeersWithoutASessionOrAWindowGetRepliesToo) {
  ASSERT_FALSE(peer.session()->has_window());
  writer_.refuse(peer, 1, {StatusCode::kOverloaded, "full"});
  EXPECT_EQ(peer.answer<wire::Error>(1).status.code(), StatusCode::kOverloaded);
  RecordingPeer stranger(2);
  writer_.refuse(stranger, 1, {StatusCode::kUnavailable, "not registered"});
  EXPECT_EQ(stranger.answer<wire::Error>(1).status.code(), StatusCode::kUnavailable);
}

TEST_F(ReplyWriterTest, PeerThatDoesNotReadIsClosedAndItsReplyIsKept) {
  wire::ReplyWindow& window = open_window();
  Buffer stored;
  ASSERT_EQ(window.look_up(1, stored), wire::ReplyWindow::LookupResult::kNew);
  peer.refuse_sends = true;
  RequestBatch::Request& request = batch_.add_request(Opcode::kWriteReply, 1);
  batch_.add(request, outcome(StatusCode::kOk, Version(11)));
  send(request);
  EXPECT_EQ(peer.closed.code(), StatusCode::kOverloaded);
  EXPECT_EQ(peer.closed.message(), "the peer does not read") << "the reason of the transport";
  EXPECT_EQ(window.look_up(1, stored), wire::ReplyWindow::LookupResult::kAnswered)
      << "the next connection of the session gets it";
}

}  // namespace
}  // namespace loam::storage
