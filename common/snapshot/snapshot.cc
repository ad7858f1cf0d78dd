#include "common/snapshot/snapshot.h"

#include <algorithm>
#include <array>
#include <utility>

namespace loam {

Result<Snapshot> Snapshot::make(Version base, Version high, std::span<const Version> open) {
  Snapshot snapshot;
  LOAM_RETURN_IF_ERROR(snapshot.assign(base, high, open));
  return snapshot;
}

Status Snapshot::assign(Version base, Version high, std::span<const Version> open) {
  const auto refuse = [](const std::string& why) { return Status(StatusCode::kInvalidArgument, "snapshot: " + why); };
  // All checks come before the first change, so that an error leaves the snapshot as it was.
  if (base > high) {
    return refuse("base " + std::to_string(base.value) + " is above high " + std::to_string(high.value));
  }
  if (open.size() > kMaxOpenIds) {
    return refuse(std::to_string(open.size()) + " open ids, at most " + std::to_string(kMaxOpenIds) + " are allowed");
  }
  Version previous = base;
  for (const Version id : open) {
    if (id <= previous || id > high) {
      return refuse("open id " + std::to_string(id.value) + " does not ascend, or is outside of (base, high]");
    }
    previous = id;
  }
  base_ = base.value;
  high_ = high.value;
  open_.assign(open.begin(), open.end());
  make_canonical();
  return ok_status();
}

void Snapshot::make_canonical() {
  // If the id `high` is open, a snapshot with `high` - 1 and without this id sees the same versions. And all ids above
  // base and below the first open one are visible, so base rises to the last of them.
  while (!open_.empty() && open_.back().value == high_) {
    open_.pop_back();
    --high_;
  }
  base_ = open_.empty() ? high_ : open_.front().value - 1;
}

bool Snapshot::sees_all_of(const Snapshot& other) const {
  // The first test suffices if the snapshots were taken far apart. `other` sees its own high, so this snapshot must see
  // that version too.
  if (other.high_ <= base_) return true;
  if (!visible(Version(other.high_))) return false;
  // Each id that is invisible here and not above other.high must be invisible in `other` too. Both lists ascend.
  auto theirs = other.open_.begin();
  for (const Version id : open_) {
    if (id.value > other.high_) return true;
    theirs = std::lower_bound(theirs, other.open_.end(), id);
    if (theirs == other.open_.end() || *theirs != id) return false;
  }
  return true;
}

void Snapshot::encode(ByteWriter& out) const {
  out.put_varint(base_);
  out.put_varint(high_ - base_);
  out.put_varint(open_.size());
  // Encodes groups of ids on the stack first, so that the output buffer grows and checks its capacity once for each
  // group instead of once for each byte.
  constexpr size_t kPieceIds = 64;
  std::array<std::byte, kPieceIds * kMaxVarintBytes> piece;
  uint64_t previous = base_;
  for (size_t done = 0; done < open_.size(); done += kPieceIds) {
    std::byte* end = piece.data();
    for (const Version id : std::span(open_).subspan(done, std::min(kPieceIds, open_.size() - done))) {
      end = write_varint(id.value - previous - 1, end);
      previous = id.value;
    }
    out.put_raw({piece.data(), end});
  }
}

Status Snapshot::decode(ByteReader& in, Snapshot& reuse) {
  reuse.open_.clear();
  reuse.base_ = in.get_varint();
  const uint64_t span = in.get_varint();
  // An id takes at least one byte, so get_count() refuses a number that the rest of the message cannot hold.
  const size_t count = in.get_count(1);
  reuse.high_ = reuse.base_ + span;
  bool valid = !in.failed() && reuse.high_ >= reuse.base_ && count <= kMaxOpenIds;
  uint64_t previous = reuse.base_;
  for (size_t i = 0; valid && i < count; ++i) {
    const uint64_t gap = in.get_varint();
    valid = !in.failed() && gap < reuse.high_ - previous;  // implies previous + gap + 1 ≤ high, without an overflow
    if (!valid) break;
    previous += gap + 1;
    reuse.open_.push_back(Version(previous));
  }
  if (valid) {
    // The bytes may come from a peer that sends another form of the same set.
    reuse.make_canonical();
    return ok_status();
  }
  reuse.open_.clear();
  reuse.base_ = reuse.high_ = 0;
  in.fail();
  return {StatusCode::kMalformed, "snapshot: the bytes end early, or an id is out of range, or too many are open"};
}

Result<Snapshot> Snapshot::decode(ByteReader& in) {
  Snapshot snapshot;
  LOAM_RETURN_IF_ERROR(decode(in, snapshot));
  return snapshot;
}

std::string Snapshot::to_string() const {
  constexpr size_t kShown = 16;
  std::string text = "{base " + std::to_string(base_) + ", high " + std::to_string(high_);
  if (!open_.empty()) text += ", open";
  for (size_t i = 0; i < std::min(open_.size(), kShown); ++i) text += " " + std::to_string(open_[i].value);
  if (open_.size() > kShown) text += " and " + std::to_string(open_.size() - kShown) + " more";
  return text + "}";
}

}  // namespace loam
