#include "common/wire/fence_set.h"

#include <gtest/gtest.h>

namespace loam::wire {
namespace {

TEST(FenceSet, ContainsEverySessionUpToTheWatermarkExceptLivingOnes) {
  const FenceSet fences{SessionId(9), {SessionId(4), SessionId(7)}};
  for (uint64_t session = 1; session <= 12; ++session) {
    EXPECT_EQ(fences.fenced(SessionId(session)), session <= 9 && session != 4 && session != 7) << session;
  }
  EXPECT_FALSE(FenceSet().fenced(SessionId(1)));
}

TEST(FenceSet, CheckRefusesLivingSessionsThatDoNotAscendUpToTheWatermark) {
  EXPECT_TRUE(FenceSet().check().ok());
  EXPECT_TRUE((FenceSet{SessionId(9), {SessionId(4), SessionId(9)}}.check().ok()));
  EXPECT_EQ((FenceSet{SessionId(9), {SessionId(4), SessionId(4)}}.check().code()), StatusCode::kMalformed);
  EXPECT_EQ((FenceSet{SessionId(9), {SessionId(7), SessionId(4)}}.check().code()), StatusCode::kMalformed);
  EXPECT_EQ((FenceSet{SessionId(9), {SessionId(4), SessionId(10)}}.check().code()), StatusCode::kMalformed);
}

}  // namespace
}  // namespace loam::wire
