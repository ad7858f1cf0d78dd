#include "common/snapshot/publication.h"

#include <algorithm>
#include <string>
#include <utility>

namespace loam {

bool Publication::covers(const Snapshot& snapshot) const {
  // The three ways in which an open snapshot may stand in a publication (invariant 2).
  if (young_open && snapshot.base() >= floor) return true;
  if (snapshot.sees_all_of(later)) return true;
  return std::any_of(old.begin(), old.end(), [&](const OldSnapshot& listed) { return listed.snapshot == snapshot; });
}

bool Publication::garbage(Version valid_from, Version valid_to) const {
  // Later and young snapshots see the successor. A young one has a base of at least the floor, so the successor must
  // not be above the floor. Each old snapshot is tested by itself.
  if (!later.visible(valid_to) || (young_open && valid_to > floor)) return false;
  return std::none_of(old.begin(), old.end(), [&](const OldSnapshot& listed) {
    return listed.snapshot.visible(valid_from) && !listed.snapshot.visible(valid_to);
  });
}

bool Publication::tombstone_garbage(Version valid_from) const {
  // While a transaction that may write does not see the removal, the tombstone stays, so that its insert conflicts. A
  // read-only snapshot needs no tombstone. Every young snapshot counts as one of a transaction that may write.
  if (!later.visible(valid_from) || (young_open && valid_from > floor)) return false;
  return std::all_of(old.begin(), old.end(), [&](const OldSnapshot& listed) {
    return !listed.read_write || listed.snapshot.visible(valid_from);
  });
}

Version Publication::seen_by_all() const {
  // A snapshot that sees all of `later` has at least its base, so only the floor and the listed snapshots are lower.
  Version lowest = young_open ? floor : later.base();
  for (const OldSnapshot& listed : old) lowest = std::min(lowest, listed.snapshot.base());
  return lowest;
}

Status Publication::check() const {
  const auto refuse = [](const char* why) {
    return Status(StatusCode::kInvalidArgument, std::string("publication: ") + why);
  };
  if (floor > later.base()) return refuse("the floor is above what later snapshots see");
  if (!young_open && floor != later.base()) return refuse("no young snapshot is open, yet the floor is lower");
  if (old.size() > kMaxOldSnapshots) return refuse("too many old snapshots");
  return ok_status();
}

void Publication::encode(ByteWriter& out) const {
  out.put_varint(cm_epoch);
  out.put_varint(number);
  later.encode(out);
  out.put<uint8_t>(young_open);
  // The distance takes fewer bytes than the floor itself, because young snapshots are recent.
  out.put_varint(later.base().value - floor.value);
  out.put_varint(old.size());
  for (const OldSnapshot& listed : old) {
    out.put<uint8_t>(listed.read_write);
    listed.snapshot.encode(out);
  }
}

Result<Publication> Publication::decode(ByteReader& in) {
  Publication p;
  const auto get_bool = [&in] {
    const auto byte = in.get<uint8_t>();
    if (byte > 1) in.fail();
    return byte == 1;
  };
  p.cm_epoch = in.get_varint();
  p.number = in.get_varint();
  LOAM_RETURN_IF_ERROR(Snapshot::decode(in, p.later));
  p.young_open = get_bool();
  const uint64_t below = in.get_varint();
  if (below > p.later.base().value) in.fail();
  p.floor = Version(p.later.base().value - below);
  const size_t count = in.get_count(4);  // the least size: flag, base, high - base, number of ids
  if (count > kMaxOldSnapshots) in.fail();
  if (!in.failed()) p.old.reserve(count);
  for (size_t i = 0; i < count && !in.failed(); ++i) {
    OldSnapshot listed;
    listed.read_write = get_bool();
    LOAM_RETURN_IF_ERROR(Snapshot::decode(in, listed.snapshot));
    p.old.push_back(std::move(listed));
  }
  LOAM_RETURN_IF_ERROR(in.status("publication"));
  // The rules above rely on the invariants, so bytes that violate them must not become a publication.
  if (const Status status = p.check(); !status.ok()) {
    in.fail();
    return Status(StatusCode::kMalformed, std::string(status.message()));
  }
  return p;
}

}  // namespace loam
