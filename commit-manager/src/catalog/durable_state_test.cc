#include "commit-manager/src/catalog/durable_state.h"

#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

namespace loam::commit {
namespace {

DurableState some_state() {
  DurableState state;
  state.epoch = 3;
  state.transactions = TransactionId(77);
  state.sessions = SessionId(9);
  state.last_incarnation = Incarnation(5);
  state.next_table = TableId(1030);
  state.node_lease_ns = 5;
  state.nodes = {{NodeId(1), Incarnation(5), "tcp://127.0.0.1:7401", "", 1u << 20, false}};
  state.shards_assigned = true;
  state.shards.owners.assign(wire::kVirtualShards, NodeId(1));
  state.history = {{7, 8}, {{2, 98, 4}, {3, 99, 10}}, 12};
  return state;
}

Result<DurableState> decoded(const DurableState& state) {
  Buffer bytes;
  encode_state(state, bytes);
  return decode_state(bytes);
}

TEST(DurableStateTest, KeepsTheHistoryOfEpochs) {
  const auto state = decoded(some_state());
  ASSERT_TRUE(state.ok()) << state.status().to_string();
  EXPECT_EQ(state->history.cluster, (wire::ClusterId{7, 8}));
  ASSERT_EQ(state->history.epochs.size(), 2u);
  EXPECT_EQ(state->history.epochs[1].random, 99u);
  EXPECT_EQ(state->history.epochs[1].first_state, 10u);
  EXPECT_EQ(state->history.state, 12u);
  EXPECT_EQ(state->transactions, TransactionId(77));
}

/// The position of the commit log comes from the commit log alone, so states that predate the log can be read.
TEST(DurableStateTest, DoesNotKeepThePositionOfTheCommitLog) {
  DurableState with_commits = some_state();
  with_commits.history.log = 1'000;
  Buffer bytes, without;
  encode_state(with_commits, bytes);
  encode_state(some_state(), without);
  EXPECT_EQ(bytes, without);
  const auto state = decode_state(bytes);
  ASSERT_TRUE(state.ok()) << state.status().to_string();
  EXPECT_EQ(state->history.log, 0u);
}

TEST(DurableStateTest, RefusesInconsistentHistory) {
  const auto bad = [](auto change) {
    DurableState state = some_state();
    change(state);
    return decoded(state).code() == StatusCode::kMalformed;
  };
  EXPECT_TRUE(bad([](DurableState& state) { state.history.cluster = {}; }));
  EXPECT_TRUE(bad([](DurableState& state) { state.history.epochs.clear(); }));
  EXPECT_TRUE(bad([](DurableState& state) { state.history.epochs.pop_back(); })) << "the history ends before the epoch";
  EXPECT_TRUE(bad([](DurableState& state) { state.history.state = 8; }));
}

TEST(DurableStateTest, OtherFormatsAreRefused) {
  for (const uint32_t format : {kOldestStateFormat - 1, kStateFormat + 1}) {
    DurableState state = some_state();
    state.format = format;
    EXPECT_EQ(decoded(state).code(), StatusCode::kUnsupportedVersion) << format;
  }
}

/// A commit manager of format 4 wrote it after two starts, with two storage nodes and an index.
TEST(DurableStateTest, ReadsStateOfPreviousFormat) {
  std::ifstream file(LOAM_TEST_DATA "/state_of_format_4", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(text.empty());
  const auto state = decode_state(as_bytes(text));
  ASSERT_TRUE(state.ok()) << state.status().to_string();
  EXPECT_EQ(state->format, 4u);
  EXPECT_EQ(state->epoch, 2u);
  EXPECT_FALSE(state->history.cluster);
  EXPECT_TRUE(state->history.epochs.empty());
  EXPECT_EQ(state->nodes.size(), 2u);
  ASSERT_EQ(state->tables.size(), 2u);
  EXPECT_EQ(state->tables[0].name, "accounts");
  EXPECT_TRUE(state->tables[1].index);
  EXPECT_TRUE(state->shards_assigned);
  EXPECT_GT(state->transactions.value, 0u);
}

}  // namespace
}  // namespace loam::commit
