#include "common/base/status.h"

#include <gtest/gtest.h>

namespace loam {
namespace {

TEST(Status, SuccessHasNoMessage) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.to_string(), "kOk");
}

TEST(Status, ErrorHasAMessageAndCopiesDeeply) {
  Status status(StatusCode::kConflict, "record 7");
  const Status copy = status;
  status = ok_status();
  EXPECT_FALSE(copy.ok());
  EXPECT_TRUE(copy == StatusCode::kConflict);
  EXPECT_EQ(copy.to_string(), "kConflict: record 7");
}

TEST(Status, EveryCodeHasAName) {
  for (int code = 0; code <= static_cast<int>(StatusCode::kWrongCluster); ++code) {
    EXPECT_NE(to_string(static_cast<StatusCode>(code)), "kUnknownCode") << code;
  }
  EXPECT_EQ(to_string(static_cast<StatusCode>(999)), "kUnknownCode");
  EXPECT_EQ(to_string(StatusCode::kWrongTableKind), "kWrongTableKind");
  EXPECT_EQ(to_string(StatusCode::kWrongCluster), "kWrongCluster");
}

Result<int> half(int x) {
  if (x % 2 != 0) return Status(StatusCode::kInvalidArgument, "odd");
  return x / 2;
}

Result<int> quarter(int x) {
  LOAM_ASSIGN_OR_RETURN(const int h, half(x));
  return half(h);
}

TEST(Result, CarriesValueOrStatus) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(quarter(7).status().message(), "odd");
}

TEST(ResultDeathTest, ValueOfAnErrorAborts) { EXPECT_DEATH(static_cast<void>(half(1).value()), "failed Result"); }

}  // namespace
}  // namespace loam
