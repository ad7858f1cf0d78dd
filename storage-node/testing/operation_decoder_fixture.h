// For tests: the decoder of point operations alone, with a batch that is not executed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "storage-node/src/request/operation_decoder.h"
#include "storage-node/testing/node_fixture.h"

namespace loam::storage {

/// A decoder, and a batch that is not executed.
class OperationDecoderTest : public NodeFixture {
 protected:
  static constexpr TableId kPeople{3};    // transactional, of two fields
  static constexpr TableId kDeferred{4};  // transactional, in the catalog only
  static constexpr TableId kDeferredPlain{5};
  static constexpr TableId kOrdinary{6};  // non-transactional, of an application
  static constexpr TableId kUnknown{77};

  void SetUp() override {
    enter_service();
    install_index();
    const wire::ShardMap shards = catalog().shards;
    const wire::TableInfo people{kPeople, "people", TableKind::kTransactional, people_};
    const wire::TableInfo ordinary{kOrdinary, "ordinary", TableKind::kNonTransactional, schema("value")};
    ASSERT_TRUE(registry->install(*epoch_thread, people, shards).ok());
    ASSERT_TRUE(registry->install(*epoch_thread, ordinary, shards).ok());
    {
      const EpochGuard guard(*epoch_thread);
      view_ = registry->view();
    }
    view_.deferred[kDeferred] = {kDeferred, "deferred", TableKind::kTransactional, people_};
    view_.deferred[kDeferredPlain] = {kDeferredPlain, "deferred.plain", TableKind::kNonTransactional, people_};
    peer.attach(std::make_shared<NodeSession>(SessionId(5), intent_pool));
  }

  static wire::RecordId account(uint64_t key) { return {kAccounts, Key(key)}; }
  static wire::RecordId counter(uint64_t key) { return {kCounters, Key(key)}; }
  static wire::RecordId person(uint64_t key) { return {kPeople, Key(key)}; }
  static wire::RecordId node(uint64_t key) { return {kIndex, Key(key)}; }
  wire::Write insert(uint64_t transaction, uint64_t key) const {
    return {TransactionId(transaction), Snapshot(Version(10)), {{wire::WriteKind::kInsert, account(key), bytes_}}};
  }

  /// Decodes a message, whose bytes stay valid until the end of the test.
  template <wire::Message M>
  Status decode(uint64_t sequence, const M& message) {
    Buffer& bytes = messages_.emplace_back();
    wire::encode_message(message, sequence, bytes);
    return decode_bytes(bytes);
  }
  Status decode_bytes(Bytes bytes) {
    ByteReader reader(bytes);
    wire::Envelope envelope;
    EXPECT_TRUE(wire::decode_envelope(reader, envelope).ok());
    const EpochGuard guard(*epoch_thread);
    const std::scoped_lock lock(peer.session()->batch_lock());
    return decoder_.decode(peer, view_, envelope, reader);
  }
  /// Decodes a message that the decoder refuses as a whole. Returns code and message of the reply.
  template <wire::Message M>
  std::string refusal(const M& message) {
    const size_t requests = batch_.requests().size();
    peer.sent.clear();
    EXPECT_TRUE(decode(900, message).ok()) << "a refusal does not end the connection";
    EXPECT_EQ(batch_.requests().size(), requests) << "a refused request is not executed";
    EXPECT_EQ(peer.sent.size(), 1u);
    return peer.answer<wire::Error>(900).status.to_string();
  }
  /// The codes of the items of the newest request; kOk for those that will be executed.
  std::vector<StatusCode> codes() {
    std::vector<StatusCode> found;
    const RequestBatch::Request& request = batch_.requests().back();
    for (const RequestBatch::Item& item : batch_.items(request)) {
      EXPECT_TRUE(item.executed() || item.code != StatusCode::kOk || request.reply == wire::Opcode::kRevertReply);
      found.push_back(item.code);
    }
    return found;
  }
  Table* table(TableId id) const { return (*view_.find(id))->table.get(); }
  /// The intents that the decoder has appended to the list of the session.
  std::vector<wire::Intent> noted() {
    const EpochGuard guard(*epoch_thread);
    uint64_t after = 0;
    page_ = std::make_unique<IntentPage>(size_t{1} << 20, size_t{1'000});
    EXPECT_TRUE(peer.session()->intents().read(registry->publication(), after, *page_));
    return page_->intents;
  }

  const Schema people_ = Schema::make({{"id", FieldType::kInt64, false}, {"name", FieldType::kText, false}}).value();
  const Buffer bytes_ = row(1);
  IntentPool small_pool_{IntentBlock::kBytes};
  RecordingPeer peer{1};
  RegistryView view_;  // a copy, which keeps the tables alive
  std::deque<Buffer> messages_;
  std::unique_ptr<IntentPage> page_;
  RequestBatch batch_;
  ReplyWriter replies_;
  ExecutorCounters counters_;
  OperationDecoder decoder_{*registry, batch_, replies_, counters_};
};

}  // namespace loam::storage
