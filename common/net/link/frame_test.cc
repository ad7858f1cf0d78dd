#include "common/net/link/frame.h"

#include <string>

#include <gtest/gtest.h>

#include "common/net/transport/transport.h"

namespace loam::net {
namespace {

TEST(Frame, FootprintsAreMultiplesOfEight) {
  EXPECT_EQ(message_footprint(1), 16u);
  EXPECT_EQ(message_footprint(8), 16u);
  EXPECT_EQ(message_footprint(9), 24u);
  EXPECT_TRUE(takes_credit(FrameType::kMessages) && takes_credit(FrameType::kWrite));
  EXPECT_FALSE(takes_credit(FrameType::kCredits) || takes_credit(FrameType::kGoodbye));
}

TEST(Frame, LayoutOfAGreetingIsFixedForAllVersions) {
  Greeting greeting;
  greeting.protocol_version = 0x01020304;
  std::byte bytes[sizeof(Greeting)];
  write_as(bytes, greeting);
  EXPECT_EQ(as_text(Bytes(bytes).first(7)), "LoamNet");
  EXPECT_EQ(bytes[7], std::byte{0xff});
  EXPECT_EQ(bytes[8], std::byte{64});
  EXPECT_EQ(bytes[12], std::byte{4});
  EXPECT_EQ(bytes[15], std::byte{1});
}

TEST(Frame, TheVersionIsCheckedBeforeOtherFieldsOfTheGreeting) {
  Greeting other;  // with invalid limits, because the fields of another version may differ
  other.protocol_version = 2;
  EXPECT_EQ(check_greeting(other, GreetingKind::kHello, 1).code(), StatusCode::kUnsupportedVersion);
  Greeting good;
  good.protocol_version = 1;
  good.max_frame_bytes = kMinFrameBytes;
  good.window_frames = 2;
  good.max_message_bytes = 1;
  EXPECT_TRUE(check_greeting(good, GreetingKind::kHello, 1).ok());
  EXPECT_EQ(check_greeting(good, GreetingKind::kWelcome, 1).code(), StatusCode::kMalformed);
  good.magic ^= 1;
  EXPECT_EQ(check_greeting(good, GreetingKind::kHello, 1).code(), StatusCode::kMalformed);
}

TEST(Frame, AGoodbyeMapsUnexpectedCodesToUnavailable) {
  const std::string text = "why\n\x01 \xc3\xa9";
  const auto say = [&](StatusCode code, uint32_t size) {
    return parse_goodbye({0, FrameType::kGoodbye, 0, 0, static_cast<uint32_t>(code), size}, as_bytes(text));
  };
  EXPECT_EQ(say(StatusCode::kOverloaded, 3).code(), StatusCode::kOverloaded);
  EXPECT_EQ(say(StatusCode::kMalformed, 3).code(), StatusCode::kMalformed);
  EXPECT_EQ(say(StatusCode::kOk, 3).code(), StatusCode::kUnavailable);
  EXPECT_EQ(say(StatusCode::kConflict, 3).code(), StatusCode::kUnavailable);
  EXPECT_EQ(say(static_cast<StatusCode>(60'000), 3).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(say(StatusCode::kOk, UINT32_MAX).message().ends_with(": why?? ??")) << "the length exceeds the frame";
}

TEST(Frame, PartsMustFillTheirFrameExactly) {
  Buffer payload(sizeof(PartHeader) + 16);
  Part part;
  const auto parse = [&](uint32_t size) { return parse_part({0, FrameType::kWrite, 0, 0, size, 0}, payload, part); };
  EXPECT_TRUE(parse(16).ok());
  EXPECT_TRUE(parse(9).ok());
  EXPECT_EQ(part.bytes.size(), 9u);
  EXPECT_FALSE(parse(8).ok());
  EXPECT_FALSE(parse(17).ok());
  EXPECT_FALSE(parse(0).ok());
  EXPECT_FALSE(parse(UINT32_MAX).ok());
  payload.resize(8);
  EXPECT_FALSE(parse(1).ok());
}

}  // namespace
}  // namespace loam::net
