// The requests of one batch between decoding and reply, with the memory that their operations refer to.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/schema/projection.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/storage.h"
#include "storage-node/src/version/batch.h"

namespace loam::storage {

/// The requests of one batch, and the point operations that they need.
///
/// A request has one item for each of its operations, in the order of the message. An item either names a point
/// operation of the batch, or the code with which the operation is answered without being executed. The point
/// operations of all requests lie in one array, because execute() overlaps their cache misses across requests.
///
/// Owner: the executor of a network thread. Threads: one. clear() keeps the memory, so after warm-up a batch allocates
/// nothing.
class RequestBatch {
 public:
  /// One operation of a request.
  struct Item {
    static constexpr size_t kNotExecuted = SIZE_MAX;
    size_t operation = kNotExecuted;    // its index in operations()
    StatusCode code = StatusCode::kOk;  // why it is not executed
    uint32_t intents = 0;               // intents of it that were appended to the session's list

    bool executed() const { return operation != kNotExecuted; }
  };

  struct Request {
    wire::Opcode reply{};
    uint64_t sequence = 0;
    size_t first_item = 0;
    size_t item_count = 0;
    const Projection* projection = nullptr;  // the fields that a read asks for; null: all fields
    std::string detail;                      // explains the first refusal that needs more than a code

    /// Describes the fault of operation `index`, unless an earlier operation has set the detail.
    void set_detail(size_t index, std::string_view table_name, std::string_view fault);
  };

  /// Adds a request without items. The reference is valid until the next call.
  Request& add_request(wire::Opcode reply, uint64_t sequence);
  /// Adds an operation that is answered with `code` and not executed. `request` is the newest request.
  void add(Request& request, StatusCode code);
  /// Adds an operation to execute. `request` is the newest request.
  void add(Request& request, const PointOperation& operation, uint32_t intents = 0);

  /// Copies the projection to memory that stays valid until clear().
  const Projection* retain(const Projection& projection);
  /// Swaps the snapshot into memory that stays valid until clear(). The caller's variable receives the buffers of an
  /// earlier snapshot, so that decoding allocates nothing.
  const Snapshot* retain(Snapshot& snapshot);

  bool empty() const { return requests_used_ == 0; }
  std::span<Request> requests() { return {requests_.data(), requests_used_}; }
  std::span<const Item> items() const { return items_; }
  std::span<const Item> items(const Request& request) const {
    return items().subspan(request.first_item, request.item_count);
  }
  std::span<PointOperation> operations() { return operations_; }
  const PointOperation& operation(const Item& item) const { return operations_[item.operation]; }

  /// Removes all requests.
  void clear();

 private:
  std::vector<PointOperation> operations_;
  std::vector<Item> items_;
  // Elements that own memory are reused: the first *_used_ ones are in use.
  std::vector<Request> requests_;
  size_t requests_used_ = 0;
  std::vector<std::unique_ptr<Snapshot>> snapshots_;
  size_t snapshots_used_ = 0;
  std::deque<Projection> projections_;
  size_t projections_used_ = 0;
};

}  // namespace loam::storage
