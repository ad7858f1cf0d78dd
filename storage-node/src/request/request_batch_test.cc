#include "storage-node/src/request/request_batch.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace loam::storage {
namespace {

using wire::Opcode;

PointOperation get_of(uint64_t key) {
  PointOperation operation;
  operation.key = Key(key);
  return operation;
}

/// A snapshot that sees all versions up to `base` + 2 except the one after `base`. It owns memory for the open id.
Snapshot snapshot_with_open_id(uint64_t base) {
  const Version open[] = {Version(base + 1)};
  return Snapshot::make(Version(base), Version(base + 2), open).value();
}

class RequestBatchTest : public ::testing::Test {
 protected:
  Projection fields(const std::vector<uint16_t>& numbers) const {
    return Projection::make(schema_, FieldNumbers(numbers)).value();
  }
  /// The keys of the executed operations of a request, in order; 0 for an operation that is not executed.
  std::vector<uint64_t> keys(const RequestBatch::Request& request) const {
    std::vector<uint64_t> found;
    for (const RequestBatch::Item& item : batch_.items(request)) {
      found.push_back(item.executed() ? batch_.operation(item).key.value : 0);
    }
    return found;
  }

  const Schema schema_ = Schema::make({{"id", FieldType::kInt64, false}, {"age", FieldType::kInt16, true}}).value();
  RequestBatch batch_;
};

TEST_F(RequestBatchTest, KeepsOperationsInTheOrderOfTheMessages) {
  EXPECT_TRUE(batch_.empty());
  RequestBatch::Request& first = batch_.add_request(Opcode::kReadReply, 70);
  batch_.add(first, get_of(9));
  batch_.add(first, StatusCode::kNoSuchTable);
  batch_.add(first, get_of(3));
  RequestBatch::Request& second = batch_.add_request(Opcode::kWriteReply, 60);
  batch_.add(second, StatusCode::kOverloaded);
  batch_.add(second, get_of(5), 2);

  EXPECT_FALSE(batch_.empty());
  ASSERT_EQ(batch_.requests().size(), 2u);
  EXPECT_EQ(batch_.requests()[0].reply, Opcode::kReadReply);
  EXPECT_EQ(batch_.requests()[0].sequence, 70u);
  EXPECT_EQ(keys(batch_.requests()[0]), (std::vector<uint64_t>{9, 0, 3}));
  EXPECT_EQ(batch_.requests()[1].reply, Opcode::kWriteReply);
  EXPECT_EQ(batch_.requests()[1].sequence, 60u);
  EXPECT_EQ(keys(batch_.requests()[1]), (std::vector<uint64_t>{0, 5}));
  ASSERT_EQ(batch_.operations().size(), 3u) << "operations that are not executed take no place";
  EXPECT_EQ(batch_.operations()[0].key, Key(9));
  EXPECT_EQ(batch_.operations()[1].key, Key(3));
  EXPECT_EQ(batch_.operations()[2].key, Key(5));
}

TEST_F(RequestBatchTest, ItemsSayWhyTheyAreNotExecutedAndHowManyIntentsTheyHave) {
  RequestBatch::Request& request = batch_.add_request(Opcode::kPlainWriteReply, 1);
  batch_.add(request, get_of(1), 3);
  batch_.add(request, StatusCode::kWrongShard);
  batch_.add(request, get_of(2));
  const auto items = batch_.items();
  ASSERT_EQ(items.size(), 3u);
  EXPECT_TRUE(items[0].executed());
  EXPECT_EQ(items[0].code, StatusCode::kOk);
  EXPECT_EQ(items[0].intents, 3u);
  EXPECT_FALSE(items[1].executed());
  EXPECT_EQ(items[1].code, StatusCode::kWrongShard);
  EXPECT_EQ(items[1].intents, 0u) << "an operation that is not executed has no intents";
  EXPECT_TRUE(items[2].executed());
  EXPECT_EQ(items[2].intents, 0u);
}

TEST_F(RequestBatchTest, ItemsShowTheOutcomesOfTheirOperations) {
  RequestBatch::Request& request = batch_.add_request(Opcode::kWriteReply, 1);
  batch_.add(request, get_of(1));
  batch_.add(request, StatusCode::kNoSuchTable);
  batch_.add(request, get_of(2));
  batch_.operations()[0].code = StatusCode::kConflict;
  batch_.operations()[1].version = Version(8);
  const auto items = batch_.items(request);
  EXPECT_EQ(batch_.operation(items[0]).code, StatusCode::kConflict);
  EXPECT_EQ(batch_.operation(items[2]).code, StatusCode::kOk);
  EXPECT_EQ(batch_.operation(items[2]).version, Version(8));
}

TEST_F(RequestBatchTest, ARequestMayHaveNoOperations) {
  batch_.add_request(Opcode::kReadReply, 1);
  EXPECT_FALSE(batch_.empty()) << "it needs a reply";
  RequestBatch::Request& second = batch_.add_request(Opcode::kReadReply, 2);
  batch_.add(second, get_of(4));
  EXPECT_TRUE(batch_.items(batch_.requests()[0]).empty());
  EXPECT_EQ(keys(batch_.requests()[1]), std::vector<uint64_t>{4});
}

TEST_F(RequestBatchTest, DetailDescribesTheFirstFaultOnly) {
  RequestBatch::Request& request = batch_.add_request(Opcode::kWriteReply, 1);
  EXPECT_EQ(request.detail, "");
  request.set_detail(3, "accounts", "the row is too short");
  EXPECT_EQ(request.detail, "operation 3 on table accounts: the row is too short");
  request.set_detail(0, "people", "another fault");
  EXPECT_EQ(request.detail, "operation 3 on table accounts: the row is too short");
}

/// The batch has no limit of its own: the decoder limits the operations of a request, and the size of a network frame
/// limits the requests.
TEST_F(RequestBatchTest, HoldsMoreOperationsThanOneRequestMayHave) {
  constexpr uint64_t kRequests = 20;
  constexpr uint64_t kOperations = wire::kMaxOperations / 4;
  for (uint64_t sequence = 0; sequence < kRequests; ++sequence) {
    RequestBatch::Request& request = batch_.add_request(Opcode::kReadReply, sequence);
    for (uint64_t i = 0; i < kOperations; ++i) batch_.add(request, get_of(1 + sequence * kOperations + i));
  }
  ASSERT_EQ(batch_.operations().size(), kRequests * kOperations);
  ASSERT_EQ(batch_.requests().size(), kRequests);
  uint64_t expected = 0;
  for (const RequestBatch::Request& request : batch_.requests()) {
    EXPECT_EQ(request.sequence, expected / kOperations);
    EXPECT_EQ(request.item_count, kOperations);
    for (const uint64_t key : keys(request)) ASSERT_EQ(key, ++expected);
  }
}

TEST_F(RequestBatchTest, RetainedSnapshotsAndProjectionsStayInPlace) {
  constexpr uint64_t kCount = 200;
  const std::vector<uint16_t> both = {1, 0}, one = {1};
  std::vector<const Snapshot*> snapshots;
  std::vector<const Projection*> projections;
  for (uint64_t i = 0; i < kCount; ++i) {
    Snapshot snapshot = snapshot_with_open_id(i);
    snapshots.push_back(batch_.retain(snapshot));
    projections.push_back(batch_.retain(fields(i % 2 == 0 ? both : one)));
  }
  for (uint64_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(*snapshots[i], snapshot_with_open_id(i)) << i;
    EXPECT_EQ(projections[i]->numbers(), FieldNumbers(i % 2 == 0 ? both : one)) << i;
  }
}

TEST_F(RequestBatchTest, ClearRemovesAllRequestsAndTheirState) {
  const std::vector<uint16_t> numbers = {1};
  for (uint64_t sequence = 1; sequence <= 2; ++sequence) {
    RequestBatch::Request& request = batch_.add_request(Opcode::kReadReply, sequence);
    request.projection = batch_.retain(fields(numbers));
    batch_.add(request, StatusCode::kInvalidArgument);
    batch_.add(request, get_of(1));
    request.set_detail(0, "accounts", "fault");
  }
  batch_.clear();
  EXPECT_TRUE(batch_.empty());
  EXPECT_TRUE(batch_.requests().empty());
  EXPECT_TRUE(batch_.items().empty());
  EXPECT_TRUE(batch_.operations().empty());

  RequestBatch::Request& next = batch_.add_request(Opcode::kWriteReply, 9);
  EXPECT_EQ(next.reply, Opcode::kWriteReply);
  EXPECT_EQ(next.sequence, 9u);
  EXPECT_EQ(next.projection, nullptr);
  EXPECT_EQ(next.detail, "");
  EXPECT_TRUE(batch_.items(next).empty());
  batch_.add(next, get_of(7));
  EXPECT_EQ(keys(next), std::vector<uint64_t>{7});
  EXPECT_EQ(batch_.requests().size(), 1u);
}

TEST_F(RequestBatchTest, TheNextBatchUsesTheSameMemory) {
  const std::vector<uint16_t> numbers = {1};
  const auto fill = [&] {
    std::vector<const void*> places;
    for (uint64_t sequence = 0; sequence < 50; ++sequence) {
      RequestBatch::Request& request = batch_.add_request(Opcode::kReadReply, sequence);
      batch_.add(request, get_of(sequence));
      Snapshot snapshot = snapshot_with_open_id(sequence);
      places.push_back(batch_.retain(snapshot));
      places.push_back(batch_.retain(fields(numbers)));
    }
    places.push_back(batch_.operations().data());
    places.push_back(batch_.items().data());
    places.push_back(batch_.requests().data());
    batch_.clear();
    return places;
  };
  const auto first = fill();
  EXPECT_EQ(fill(), first);
}

TEST_F(RequestBatchTest, RetainGivesTheMemoryOfAnEarlierSnapshotToTheCaller) {
  Snapshot snapshot = snapshot_with_open_id(10);
  const Version* const memory = snapshot.open().data();
  const Snapshot* const first = batch_.retain(snapshot);
  EXPECT_EQ(first->open().data(), memory) << "moved, not copied";
  batch_.clear();
  snapshot = snapshot_with_open_id(20);
  const Snapshot* const second = batch_.retain(snapshot);
  EXPECT_EQ(*second, snapshot_with_open_id(20));
  EXPECT_EQ(snapshot.open().data(), memory);
}

}  // namespace
}  // namespace loam::storage
