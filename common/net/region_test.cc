// One-sided writes over every transport: they arrive before later messages, and only inside of offered regions.

#include <string>
#include <vector>

#include "common/testing/transport_fixture.h"

namespace loam::net {
namespace {

using testing::RecordingHandler;
using testing::text_of;

template <class World>
class RegionTest : public testing::PairTest<World> {
 protected:
  /// Offers a region of the server, and polls until the client knows its memory window, if the network has any.
  Result<OfferedRegion> offer(size_t size) {
    this->poll_until_idle();
    auto region = this->accepted_->offer_region(size);
    this->poll_until_idle();
    return region;
  }
};
TYPED_TEST_SUITE(RegionTest, testing::TestNetworks, testing::TestNetworkNames);

TYPED_TEST(RegionTest, OneSidedWritesAreInPlaceBeforeLaterMessages) {
  this->open();
  constexpr size_t kBytes = 200'000;
  const auto region = this->offer(kBytes);
  ASSERT_TRUE(region.ok());
  std::string seen;
  this->served_.when_messages = [&](Connection&, std::span<const Bytes>) { seen = as_text(region->memory); };
  const std::string large = text_of(4, 150'000);
  const RemoteRegion& remote = region->remote;
  ASSERT_TRUE(this->connection_->write(remote, 0, as_bytes(std::string(kBytes, '.'))).ok());
  ASSERT_TRUE(this->connection_->write(remote, 10, as_bytes("abc")).ok());
  ASSERT_TRUE(this->connection_->write(remote, 50'000, as_bytes(large)).ok());
  ASSERT_TRUE(this->connection_->write(remote, 12, as_bytes("C!")).ok());
  ASSERT_TRUE(this->connection_->write(remote, kBytes, {}).ok());
  ASSERT_TRUE(this->connection_->send(as_bytes("look")).ok());
  ASSERT_TRUE(this->poll_until([&] { return !this->served_.messages.empty(); }));
  std::string wanted(kBytes, '.');
  wanted.replace(10, 4, "abC!");
  wanted.replace(50'000, large.size(), large);
  EXPECT_EQ(seen, wanted);
  EXPECT_EQ(this->served_.messages, std::vector<std::string>{"look"}) << "writes call no handler";
  const bool by_device = TypeParam::kScheme == Scheme::kRdma;
  EXPECT_EQ(this->client_->counters().direct_bytes.read(), by_device ? kBytes + large.size() + 5 : 0);
  EXPECT_EQ(this->server_->counters().frames_in.read() > 1, !by_device)
      << "either the device writes, or frames carry the bytes";
}

TYPED_TEST(RegionTest, RegionsAreReusedAfterWithdrawal) {
  this->open();
  for (size_t i = 0; i < 20; ++i) {
    const auto region = this->offer(1 + i * 997);
    ASSERT_TRUE(region.ok());
    const std::string text(region->memory.size(), static_cast<char>('a' + i));
    ASSERT_TRUE(this->connection_->write(region->remote, 0, as_bytes(text)).ok());
    ASSERT_TRUE(this->connection_->send(as_bytes("look")).ok());
    ASSERT_TRUE(this->poll_until([&] { return this->served_.messages.size() == i + 1; }));
    ASSERT_EQ(as_text(region->memory), text);
    this->accepted_->withdraw_region(region->remote);
  }
  EXPECT_TRUE(this->connection_->is_open());
}

TYPED_TEST(RegionTest, OfferRefusesInvalidRegionSizes) {
  this->open();
  EXPECT_EQ(this->accepted_->offer_region(0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(this->accepted_->offer_region(kMaxRegionBytes + 1).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(this->accepted_->offer_region(kMaxRegionBytes).ok());
}

TYPED_TEST(RegionTest, TheSenderRefusesWritesOutsideOfTheRegion) {
  this->open();
  const auto offered = this->offer(100);
  ASSERT_TRUE(offered.ok());
  const RemoteRegion& region = offered->remote;
  EXPECT_EQ(this->connection_->write(region, 98, as_bytes("abc")).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(this->connection_->write(region, UINT64_MAX, as_bytes("abc")).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(this->connection_->write(region, 97, as_bytes("abc")).ok());
}

TYPED_TEST(RegionTest, ForgedAndWithdrawnRegionsEndTheConnectionAndTouchNothing) {
  enum class Forgery { kSize, kId, kWithdrawn, kOtherConnection };
  for (const Forgery forgery : {Forgery::kSize, Forgery::kId, Forgery::kWithdrawn, Forgery::kOtherConnection}) {
    SCOPED_TRACE(static_cast<int>(forgery));
    this->transports_.clear();
    this->served_ = RecordingHandler();
    this->owner_ = RecordingHandler();
    if constexpr (TypeParam::kScheme == Scheme::kSim) {
      std::destroy_at(&this->world_);
      std::construct_at(&this->world_);
    }
    this->open();
    const OfferedRegion offered = *this->offer(100);
    const OfferedRegion other = *this->offer(200);  // stays on offer; forged writes must not reach it
    RemoteRegion region = offered.remote;
    EXPECT_NE(other.remote.id, region.id);
    ASSERT_TRUE(this->connection_->write(region, 0, as_bytes(std::string(100, '.'))).ok());
    ASSERT_TRUE(this->connection_->write(other.remote, 0, as_bytes(std::string(200, '.'))).ok());
    ASSERT_TRUE(this->connection_->send(as_bytes("filled")).ok());
    ASSERT_TRUE(this->poll_until([&] { return !this->served_.messages.empty(); }));
    std::string left;
    this->served_.when_closed = [&](Connection& connection) {
      if (&connection == this->accepted_) left = as_text(other.memory);
      if (&connection == this->accepted_ && forgery != Forgery::kWithdrawn) left += as_text(offered.memory);
    };
    Connection* writer = this->connection_;
    if (forgery == Forgery::kSize) region.size = 1'000'000;
    if (forgery == Forgery::kId) region.id += 2;
    if (forgery == Forgery::kWithdrawn) this->accepted_->withdraw_region(region);
    if (forgery == Forgery::kOtherConnection) {
      writer = &this->connect(*this->client_, this->address_, this->owner_);
      ASSERT_TRUE(this->poll_until([&] { return this->served_.connections.size() == 2; }));
    }
    // Soft-RoCE enforces the bounds of the registered block, which has whole pages; other devices enforce those of the
    // memory window.
    ASSERT_TRUE(writer->write(region, forgery == Forgery::kSize ? 500'000 : 0, as_bytes("xyz")).ok());
    ASSERT_TRUE(this->poll_until([&] { return !this->served_.closed.empty() && !this->owner_.closed.empty(); }));
    EXPECT_EQ(this->served_.closed[0].code(), StatusCode::kMalformed) << this->served_.closed[0].to_string();
    EXPECT_EQ(this->owner_.closed[0].code(), StatusCode::kMalformed) << this->owner_.closed[0].to_string();
    EXPECT_EQ(this->server_->counters().connections_malformed.read(), 1u);
    if (forgery == Forgery::kOtherConnection) {
      this->connection_->close({StatusCode::kCancelled, "the other one"});
      ASSERT_TRUE(this->poll_until([&] { return this->served_.closed.size() == 2; }));
    }
    EXPECT_EQ(left, std::string(forgery == Forgery::kWithdrawn ? 200 : 300, '.'));
  }
}

TYPED_TEST(RegionTest, RegionsOnOfferAreLimited) {
  this->open();
  std::vector<OfferedRegion> regions;
  for (size_t i = 0; i < kMaxRegions; ++i) regions.push_back(*this->accepted_->offer_region(8));
  EXPECT_EQ(this->accepted_->offer_region(8).code(), StatusCode::kOverloaded);
  this->accepted_->withdraw_region(regions[500].remote);
  EXPECT_TRUE(this->accepted_->offer_region(8).ok());
  ASSERT_TRUE(this->connection_->write(regions[501].remote, 0, as_bytes("in place")).ok());
  ASSERT_TRUE(this->connection_->send(as_bytes("look")).ok());
  ASSERT_TRUE(this->poll_until([&] { return !this->served_.messages.empty(); }));
  EXPECT_EQ(as_text(regions[501].memory), "in place");
}

TYPED_TEST(RegionTest, WritesToAPausedReceiverObeyTheWindow) {
  TransportOptions options;
  options.max_frame_bytes = kMinFrameBytes;
  options.window_frames = 4;
  this->open(options, options);
  const OfferedRegion region = *this->offer(900);
  this->accepted_->pause_receiving();
  ASSERT_TRUE(this->connection_->send(as_bytes("waits")).ok());
  for (size_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(this->connection_->write(region.remote, 0, as_bytes(text_of(i, 900))).ok());
  }
  this->poll_until_idle();
  // The writes of the device need no receiver.
  EXPECT_EQ(this->server_->counters().frames_in.read(), TypeParam::kScheme == Scheme::kRdma ? 1u : 4u);
  this->accepted_->resume_receiving();
  ASSERT_TRUE(this->poll_until([&] { return as_text(region.memory) == text_of(49, 900); }));
}

}  // namespace
}  // namespace loam::net
