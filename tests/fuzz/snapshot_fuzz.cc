// Fuzz target: snapshot descriptors. Input: eight bytes that name a version, then the descriptor.
#include "common/snapshot/snapshot.h"
#include "tests/fuzz/fuzz.h"

namespace {

/// The canonical form must describe the same visibility: checks it version by version.
void check_visibility(const loam::Snapshot& snapshot, loam::Version version) {
  using loam::fuzz::require;
  require(snapshot.base() <= snapshot.high(), "base is not above high");
  require(snapshot.visible(snapshot.high()) || snapshot.high().value == 0, "high is visible");
  if (version <= snapshot.base()) require(snapshot.visible(version), "everything up to base is visible");
  if (version > snapshot.high()) require(!snapshot.visible(version), "nothing above high is visible");
  loam::Version before = snapshot.base();
  for (const loam::Version open : snapshot.open()) {
    require(before < open && open < snapshot.high(), "open ids ascend between base and high");
    require(!snapshot.visible(open), "an open id is not visible");
    before = open;
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  ByteReader reader(fuzz::input(data, size));
  const Version version(reader.get<uint64_t>());
  static Snapshot reused;  // still contains the snapshot of the previous input
  ByteReader second = reader;
  auto decoded = [&] {
    const fuzz::MemoryMeter meter;
    auto result = Snapshot::decode(reader);
    meter.require_at_most(32, size);
    return result;
  }();
  // The decoder may reuse an object. Its previous content must not show in the result.
  const Status same = Snapshot::decode(second, reused);
  fuzz::require(same.ok() == decoded.ok(), "a reused object gives the same result");
  if (!decoded.ok()) {
    fuzz::require(decoded.code() == StatusCode::kMalformed, "bytes that are not a snapshot are kMalformed");
    fuzz::require(reused == Snapshot(), "a failed decode leaves a snapshot that sees nothing");
    return -1;
  }
  fuzz::require(reused == *decoded, "a reused object gives the same result");
  check_visibility(*decoded, version);
  Buffer bytes;
  ByteWriter writer(bytes);
  decoded->encode(writer);
  ByteReader again(bytes);
  const auto twice = Snapshot::decode(again);
  fuzz::require_ok(twice.status(), "an encoded snapshot can be decoded");
  fuzz::require(again.at_end() && *twice == *decoded, "a snapshot survives encoding");
  fuzz::require(decoded->sees_all_of(*twice) && twice->sees_all_of(*decoded), "equal snapshots see the same");
  const auto result = Snapshot::make(decoded->base(), decoded->high(), decoded->open());
  fuzz::require(result.ok() && *result == *decoded, "a decoded snapshot is canonical");
  (void)decoded->to_string();
  return 0;
}
