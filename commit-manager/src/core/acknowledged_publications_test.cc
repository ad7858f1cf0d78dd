#include "commit-manager/src/core/acknowledged_publications.h"

#include <gtest/gtest.h>

namespace loam::commit {
namespace {

class AcknowledgedPublicationsTest : public testing::Test {
 protected:
  static constexpr NodeId kFirst{1}, kSecond{2};

  /// Sends publication `number`: ids up to `high` are complete, except those in `open`.
  void send(uint64_t number, uint64_t high, const std::vector<Version>& open = {}) {
    Publication publication;
    publication.number = number;
    ASSERT_TRUE(publication.later.assign(Version(open.empty() ? high : open[0].value - 1), Version(high), open).ok());
    publications_.add_sent(publication);
  }
  bool acknowledge(NodeId node, uint64_t number) { return publications_.acknowledge(node, number, connected_); }
  bool complete(NodeId node, uint64_t first, uint64_t last) const {
    return publications_.complete_at(node, TransactionId(first), TransactionId(last));
  }

  std::map<NodeId, PeerId> connected_ = {{kFirst, PeerId(1)}, {kSecond, PeerId(2)}};
  AcknowledgedPublications publications_;
};

TEST_F(AcknowledgedPublicationsTest, IdsAreCompleteAtANodeAfterItsAcknowledgement) {
  send(1, 10);
  EXPECT_FALSE(complete(kFirst, 1, 10));
  EXPECT_TRUE(acknowledge(kFirst, 1));
  EXPECT_TRUE(complete(kFirst, 1, 10));
  EXPECT_FALSE(complete(kFirst, 1, 11)) << "the publication does not reach id 11";
  EXPECT_FALSE(complete(kSecond, 1, 10)) << "the other node has acknowledged nothing";
}

TEST_F(AcknowledgedPublicationsTest, OpenIdsAreNotComplete) {
  send(1, 20, {Version(5), Version(9)});
  EXPECT_TRUE(acknowledge(kFirst, 1));
  EXPECT_TRUE(complete(kFirst, 1, 4));
  EXPECT_FALSE(complete(kFirst, 1, 5));
  EXPECT_TRUE(complete(kFirst, 6, 8));
  EXPECT_FALSE(complete(kFirst, 9, 20));
  EXPECT_TRUE(complete(kFirst, 10, 20));
}

TEST_F(AcknowledgedPublicationsTest, AnOlderAcknowledgementDoesNotReplaceANewerOne) {
  send(1, 10);
  send(2, 20);
  EXPECT_TRUE(acknowledge(kFirst, 2));
  EXPECT_TRUE(acknowledge(kFirst, 1)) << "the second node may still acknowledge it, so it is known";
  EXPECT_TRUE(complete(kFirst, 1, 20));
}

TEST_F(AcknowledgedPublicationsTest, PublicationsThatAllConnectedNodesHavePassedAreDropped) {
  send(1, 10);
  send(2, 20);
  EXPECT_TRUE(acknowledge(kFirst, 2));
  EXPECT_TRUE(acknowledge(kSecond, 2));
  EXPECT_FALSE(acknowledge(kFirst, 1));
  EXPECT_TRUE(acknowledge(kSecond, 2)) << "the newest one stays";
}

TEST_F(AcknowledgedPublicationsTest, ForgetsTheOldestOfTooManyUnacknowledged) {
  constexpr uint64_t kLimit = 256;
  for (uint64_t number = 1; number <= kLimit; ++number) send(number, number);
  EXPECT_TRUE(acknowledge(kFirst, 1));
  send(kLimit + 1, kLimit + 1);
  EXPECT_FALSE(acknowledge(kSecond, 1));
  EXPECT_TRUE(acknowledge(kSecond, 2));
}

TEST_F(AcknowledgedPublicationsTest, ANewProcessOfANodeHasAcknowledgedNothing) {
  send(1, 10);
  EXPECT_TRUE(acknowledge(kFirst, 1));
  publications_.forget(kFirst);
  EXPECT_FALSE(complete(kFirst, 1, 10));
}

}  // namespace
}  // namespace loam::commit
