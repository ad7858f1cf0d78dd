// Fuzz target: publications. Input: two versions of eight bytes, then the publication.
#include "common/snapshot/publication.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  ByteReader reader(fuzz::input(data, size));
  const Version from(reader.get<uint64_t>());
  const Version to(reader.get<uint64_t>());
  const auto decoded = fuzz::check_round_trip_of<Publication>(reader, 64, size);
  if (!decoded) return -1;
  fuzz::require_ok(decoded->check(), "a decoded publication keeps its invariants");

  for (const OldSnapshot& old : decoded->old) {
    fuzz::require(decoded->covers(old.snapshot), "a listed snapshot is covered");
    if (to.value != 0 && decoded->garbage(from, to)) {
      fuzz::require(!old.snapshot.visible(from) || old.snapshot.visible(to),
                    "a version that an open snapshot sees is not garbage");
    }
    fuzz::require(old.snapshot.visible(decoded->seen_by_all()) || decoded->seen_by_all().value == 0,
                  "every listed snapshot sees the versions that all see");
  }
  fuzz::require(decoded->covers(decoded->later), "a later snapshot is covered");
  (void)decoded->tombstone_garbage(from);
  return 0;
}
