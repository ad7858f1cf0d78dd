#include "client-lib/src/driver/recent_writes.h"

#include <functional>
#include <vector>

#include "common/base/env.h"
#include "common/fiber/scheduler.h"

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
    if (place.record != record) continue;
    if (!snapshot.visible(place.committed)) {
      lost_at_ = record;
      return refused(write.table, record.key, StatusCode::kConflict);
    }
    if (place.claim != nullptr && !snapshot.visible(place.claim->version_)) committing = place.claim;
  }
  return ok_status();
}

Status RecentWrites::Claim::enter(TransactionId id, const Snapshot& snapshot, const WriteBuffer& writes) {
  const uint64_t until_ns = fiber::FiberScheduler::current()->now_ns() + kMostWaitNs;
  Claim* committing = nullptr;
  for (bool in_time = true; in_time;) {
    LOAM_RETURN_IF_ERROR(look(snapshot, writes, committing));
    if (committing == nullptr) break;
    Env::probe("client.commit.awaits_another");
    fiber::Event ended;
    committing->awaiting_.push_back(&ended);
    in_time = ended.wait_until(until_ns);
    if (!in_time) std::erase(committing->awaiting_, &ended);  // it has not ended: its end tells all that wait
  }
  version_ = version_of(id);
  places_.reserve(writes.size());
  for (const auto& [record, write] : writes.writes()) {
    Place& place = recent_.place_of(record);
    if (place.record != record) place = {record, Version(), nullptr};
    place.claim = this;
    places_.push_back(&place);
  }
  return ok_status();
}

void RecentWrites::Claim::end(bool committed) {
  for (Place* place : places_) {
    if (place->claim != this) continue;
    place->claim = nullptr;
    if (committed) place->committed = version_;
  }
  places_.clear();
  for (fiber::Event* ended : awaiting_) ended->notify();
  awaiting_.clear();
}

}  // namespace loam::client
