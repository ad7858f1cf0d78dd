// Requests, items and operations of a batch, in memory that later batches reuse.
#include "storage-node/src/request/request_batch.h"

#include <utility>

namespace loam::storage {

void RequestBatch::Request::set_detail(size_t index, std::string_view table_name, std::string_view fault) {
  if (!detail.empty()) return;
  detail = "operation " + std::to_string(index) + " on table ";
  detail.append(table_name).append(": ").append(fault);
}

RequestBatch::Request& RequestBatch::add_request(wire::Opcode reply, uint64_t sequence) {
  if (requests_used_ == requests_.size()) requests_.emplace_back();
  Request& request = requests_[requests_used_++];
  request.reply = reply;
  request.sequence = sequence;
  request.first_item = items_.size();
  request.item_count = 0;
  request.projection = nullptr;
  request.detail.clear();
  return request;
}

void RequestBatch::add(Request& request, StatusCode code) {
  items_.push_back({Item::kNotExecuted, code, 0});
  ++request.item_count;
}

void RequestBatch::add(Request& request, const PointOperation& operation, uint32_t intents) {
  items_.push_back({operations_.size(), StatusCode::kOk, intents});
  operations_.push_back(operation);
  ++request.item_count;
}

const Projection* RequestBatch::retain(const Projection& projection) {
  // A deque does not move its elements, so pointers from operations stay valid while the batch grows.
  if (projections_used_ == projections_.size()) projections_.push_back(projection);
  Projection& retained = projections_[projections_used_++];
  retained = projection;
  return &retained;
}

const Snapshot* RequestBatch::retain(Snapshot& snapshot) {
  if (snapshots_used_ == snapshots_.size()) snapshots_.push_back(std::make_unique<Snapshot>());
  Snapshot& retained = *snapshots_[snapshots_used_++];
  std::swap(retained, snapshot);
  return &retained;
}

void RequestBatch::clear() {
  operations_.clear();
  items_.clear();
  requests_used_ = snapshots_used_ = projections_used_ = 0;
}

}  // namespace loam::storage
