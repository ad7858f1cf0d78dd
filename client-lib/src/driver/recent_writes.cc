#include "client-lib/src/driver/recent_writes.h"

#include <functional>

namespace loam::client {

RecentWrites::Place& RecentWrites::place_of(const wire::RecordId& record) {
  // The keys of a table are spread already; a table's number moves them as a whole.
  const uint64_t hash = std::hash<Key>()(record.key) + std::hash<TableId>()(record.table);
  return places_[hash % kPlaces];
}

Status RecentWrites::Claim::look(const Snapshot& snapshot, const WriteBuffer& writes, Claim*& committing) {
  committing = nullptr;
  for (const auto& [record, write] : writes.writes()) {
    const Place& place = recent_.place_of(record);
    if (place.version == Version() || place.record != record || snapshot.visible(place.version)) continue;
    if (place.claim == nullptr) return refused(write.table, record.key, StatusCode::kConflict);
    committing = place.claim;
  }
  return ok_status();
}

Status RecentWrites::Claim::enter(TransactionId id, const Snapshot& snapshot, const WriteBuffer& writes) {
  Claim* committing = nullptr;
  for (;;) {
    LOAM_RETURN_IF_ERROR(look(snapshot, writes, committing));
    if (committing == nullptr) break;
    fiber::Event ended;
    committing->awaiting_.push_back(&ended);
    ended.wait();
  }
  places_.reserve(writes.size());
  for (const auto& [record, write] : writes.writes()) {
    Place& place = recent_.place_of(record);
    place = {record, version_of(id), this};
    places_.push_back(&place);
  }
  return ok_status();
}

void RecentWrites::Claim::end(bool committed) {
  for (Place* place : places_) {
    if (place->claim != this) continue;
    place->claim = nullptr;
    if (!committed) place->version = Version();
  }
  places_.clear();
  for (fiber::Event* ended : awaiting_) ended->notify();
  awaiting_.clear();
}

}  // namespace loam::client
