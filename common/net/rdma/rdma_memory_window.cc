// The blocks of MemoryWindowPool. rdma_queue_pair.cc posts the work requests that bind and invalidate their memory
// windows.

#include "common/net/rdma/rdma_memory_window.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include <sys/mman.h>

#include "common/base/log.h"
#include "common/net/rdma/rdma_error.h"

namespace loam::net {
namespace {

/// The size of a block is a multiple of this.
constexpr size_t kPageBytes = 4096;

bool has_windows(const ibv_device_attr& limits) {
  constexpr unsigned kType2 = unsigned{IBV_DEVICE_MEM_WINDOW_TYPE_2A} | unsigned{IBV_DEVICE_MEM_WINDOW_TYPE_2B};
  return (limits.device_cap_flags & kType2) != 0;
}

}  // namespace

MemoryWindowPool::MemoryWindowPool(ibv_context& context, ibv_pd& domain, const ibv_device_attr& limits,
                                   statistics::Counter& allocations)
    : context_(context),
      domain_(domain),
      supported_(has_windows(limits)),
      max_windows_(static_cast<size_t>(std::max(limits.max_mw, 0))),
      allocations_(allocations) {}

MemoryWindowPool::~MemoryWindowPool() {
  for (const auto& block : blocks_) release(*block);
}

RdmaBlock* MemoryWindowPool::find_free(size_t size) {
  // Takes the smallest block that is large enough, so that large blocks remain for large regions.
  RdmaBlock** best = nullptr;
  for (RdmaBlock*& block : free_) {
    if (block->memory.size() < size) continue;
    if (best == nullptr || block->memory.size() < (*best)->memory.size()) best = &block;
  }
  if (best == nullptr) return nullptr;
  RdmaBlock* const found = *best;
  *best = free_.back();
  free_.pop_back();
  return found;
}

RdmaBlock* MemoryWindowPool::acquire(size_t size) {
  if (!supported_) return nullptr;
  const size_t wanted = round_up(size, kPageBytes);
  if (RdmaBlock* found = find_free(wanted); found != nullptr) return found;
  // All free blocks are too small. Some of them give their memory to a larger one.
  while (!free_.empty() && (bytes_ + wanted > kMaxWindowBytes || blocks_.size() >= max_windows_)) drop(*free_.back());
  if (bytes_ + wanted > kMaxWindowBytes || blocks_.size() >= max_windows_) return nullptr;
  return make(wanted);
}

RdmaBlock* MemoryWindowPool::make(size_t size) {
  auto block = std::make_unique<RdmaBlock>();
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  block->memory = {static_cast<std::byte*>(memory), size};
  // The parentheses select the function instead of the macro of the same name, about which clang-tidy warns.
  block->registration = (ibv_reg_mr)(&domain_, memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  if (block->registration != nullptr) block->window = ibv_alloc_mw(&domain_, IBV_MW_TYPE_2);
  // The window is also null if the registration failed.
  if (block->window == nullptr) {
    const std::string what = "registering " + std::to_string(size / 1024) + " KiB with ";
    const Status failed = verbs_failed(what + ibv_get_device_name(context_.device), errno);
    log_warning("rdma.one_sided_refused", "one-sided writes travel as frames: " + std::string(failed.message()));
    release(*block);
    return nullptr;
  }
  allocations_.add(1);
  bytes_ += size;
  blocks_.push_back(std::move(block));
  return blocks_.back().get();
}

void MemoryWindowPool::release(RdmaBlock& block) {
  if (block.window != nullptr) ibv_dealloc_mw(block.window);
  if (block.registration != nullptr) ibv_dereg_mr(block.registration);
  ::munmap(block.memory.data(), block.memory.size());
}

void MemoryWindowPool::drop(RdmaBlock& block) {
  release(block);
  bytes_ -= block.memory.size();
  std::erase(free_, &block);
  std::erase_if(blocks_, [&](const auto& owned) { return owned.get() == &block; });
}

void MemoryWindowPool::release_invalidated(RdmaBlock& block) { free_.push_back(&block); }

void MemoryWindowPool::release_bound(RdmaBlock& block) {
  // The new memory window has another key, so a peer that still uses the old key reaches no memory.
  ibv_dealloc_mw(block.window);
  block.window = ibv_alloc_mw(&domain_, IBV_MW_TYPE_2);
  if (block.window == nullptr) return drop(block);
  free_.push_back(&block);
}

}  // namespace loam::net
