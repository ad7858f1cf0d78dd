// The shared counter of the memory of queries, and the accounts and chunks that acquire from it.
#include "storage-node/src/scan/query_memory.h"

#include <algorithm>
#include <string>

#include "common/base/assert.h"

namespace loam::storage {

bool QueryMemory::try_acquire(uint64_t bytes) {
  // Relaxed: the counter orders no other data. The allocator hands the memory itself over.
  uint64_t used = used_bytes_.load(std::memory_order_relaxed);
  // The bytes are compared with the rest, because a sum of the two could overflow.
  while (bytes <= limit_bytes_ && used <= limit_bytes_ - bytes) {
    if (used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed, std::memory_order_relaxed)) {
      return true;
    }
  }
  refused_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a statistic
  return false;
}

void QueryMemory::release(uint64_t bytes) {
  const uint64_t before = used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);  // relaxed: see try_acquire()
  LOAM_DCHECK(before >= bytes, "a release of more bytes than were acquired");
}

Status QueryMemory::exhausted() const {
  return {StatusCode::kOverloaded,
          "scan: the queries of this storage node hold " + std::to_string(used_bytes()) + " of " +
              std::to_string(limit_bytes_) +
              " bytes, the limit of all together (--query-memory-share), and this one needs more; "
              "try again when others have ended, or ask for fewer groups, rows or fields"};
}

QueryAccount::~QueryAccount() { release_all(); }

void QueryAccount::trim() {
  if (memory_ != nullptr) memory_->release(acquired_ - held_);
  acquired_ = held_;
}

void QueryAccount::release_all() {
  held_ = 0;
  trim();
}

Status QueryAccount::acquire(size_t bytes) {
  if (memory_ == nullptr || bytes <= acquired_ - held_) {
    held_ += bytes;
    acquired_ = std::max(acquired_, held_);
    return ok_status();
  }
  const size_t missing = bytes - (acquired_ - held_);
  // Whole blocks: most calls then find enough bytes acquired and leave the shared counter alone.
  const size_t drawn = (missing + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  if (!memory_->try_acquire(drawn)) return memory_->exhausted();
  acquired_ += drawn;
  held_ += bytes;
  return ok_status();
}

void QueryAccount::release(size_t bytes) {
  LOAM_DCHECK(bytes <= held_, "a release of more bytes than are held");
  held_ -= bytes;
  // Keep one block for the next acquire().
  const size_t keep = held_ + kBlockBytes;
  if (memory_ == nullptr || acquired_ <= keep) return;
  memory_->release(acquired_ - keep);
  acquired_ = keep;
}

ChunkMemory::ChunkMemory(QueryMemory* memory, size_t bytes, std::shared_ptr<InFlightCount> in_flight)
    : memory_(memory), bytes_(bytes), in_flight_(std::move(in_flight)) {
  in_flight_->fetch_add(1, std::memory_order_relaxed);  // relaxed: the same thread reads it (send_chunk())
}

ChunkMemory& ChunkMemory::operator=(ChunkMemory&& other) noexcept {
  if (this == &other) return *this;
  release_memory();
  memory_ = std::exchange(other.memory_, nullptr);
  bytes_ = other.bytes_;
  in_flight_ = std::move(other.in_flight_);
  return *this;
}

void ChunkMemory::release_memory() {
  if (QueryMemory* const memory = std::exchange(memory_, nullptr)) memory->release(bytes_);
  // Release: pairs with the acquire in ScanQuery::send_chunk(). A query that finds no chunk on its way also finds their
  // memory released.
  if (in_flight_ != nullptr) in_flight_->fetch_sub(1, std::memory_order_release);
  in_flight_.reset();
}

}  // namespace loam::storage
