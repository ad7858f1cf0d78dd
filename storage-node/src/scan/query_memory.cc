#include "storage-node/src/scan/query_memory.h"

#include <algorithm>
#include <string>

#include "common/base/assert.h"

namespace loam::storage {

bool QueryMemory::draw(uint64_t bytes) {
  // Relaxed: a count; what it counts is handed over in other ways.
  uint64_t used = used_bytes_.load(std::memory_order_relaxed);
  while (bytes <= limit_bytes_ && used <= limit_bytes_ - bytes) {
    if (used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed, std::memory_order_relaxed)) {
      return true;
    }
  }
  refused_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a statistic
  return false;
}

void QueryMemory::give_back(uint64_t bytes) {
  const uint64_t before = used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);  // relaxed: see draw()
  LOAM_DCHECK(before >= bytes, "no more is given back than was drawn");
}

Status QueryMemory::exhausted() const {
  return {StatusCode::kOverloaded,
          "scan: the queries of this storage node hold " + std::to_string(used_bytes()) + " of the " +
              std::to_string(limit_bytes_) +
              " bytes that they may take together (--query-memory-share), and this one needs more; "
              "try again when others have ended, or ask for fewer groups, rows or fields"};
}

QueryAccount::~QueryAccount() { release(); }

void QueryAccount::trim() {
  if (memory_ != nullptr) memory_->give_back(drawn_ - held_);
  drawn_ = held_;
}

void QueryAccount::release() {
  held_ = 0;
  trim();
}

Status QueryAccount::take(size_t bytes) {
  if (memory_ == nullptr || bytes <= drawn_ - held_) {
    held_ += bytes;
    drawn_ = std::max(drawn_, held_);
    return ok_status();
  }
  const size_t missing = bytes - (drawn_ - held_);
  const size_t drawn = (missing + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  if (!memory_->draw(drawn)) return memory_->exhausted();
  drawn_ += drawn;
  held_ += bytes;
  return ok_status();
}

void QueryAccount::give_back(size_t bytes) {
  LOAM_DCHECK(bytes <= held_, "no more is given back than was taken");
  held_ -= bytes;
  // One block stays for the next take().
  const size_t keep = held_ + kBlockBytes;
  if (memory_ == nullptr || drawn_ <= keep) return;
  memory_->give_back(drawn_ - keep);
  drawn_ = keep;
}

ChunkMemory::ChunkMemory(QueryMemory* memory, size_t bytes, std::shared_ptr<Counter> on_their_way)
    : memory_(memory), bytes_(bytes), on_their_way_(std::move(on_their_way)) {
  on_their_way_->fetch_add(1, std::memory_order_relaxed);  // relaxed: the query's thread itself
}

ChunkMemory& ChunkMemory::operator=(ChunkMemory&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  memory_ = std::exchange(other.memory_, nullptr);
  bytes_ = other.bytes_;
  on_their_way_ = std::move(other.on_their_way_);
  return *this;
}

void ChunkMemory::give_back() {
  if (QueryMemory* const memory = std::exchange(memory_, nullptr)) memory->give_back(bytes_);
  // Release: the query that finds no chunk on its way finds their memory given back; pairs with its acquire.
  if (on_their_way_ != nullptr) on_their_way_->fetch_sub(1, std::memory_order_release);
  on_their_way_.reset();
}

}  // namespace loam::storage
