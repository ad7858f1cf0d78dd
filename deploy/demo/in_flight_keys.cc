// The file of the keys in flight, mapped into the memory of the writer.
#include "deploy/demo/in_flight_keys.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace loam::cli {

Result<InFlightKeys> InFlightKeys::create(const std::filesystem::path& path, unsigned fibers) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const size_t bytes = 2 * sizeof(Slot) * fibers;
  void* memory = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  // The mapping stays valid after close(), so the process needs no descriptor for it.
  const int error = errno;
  if (fd >= 0) close(fd);
  if (memory == MAP_FAILED) {
    return Status(StatusCode::kInternal, "cannot write " + path.string() + ": " + std::strerror(error));
  }
  InFlightKeys result(static_cast<Slot*>(memory), fibers);
  for (unsigned fiber = 0; fiber < fibers; ++fiber) result.end(fiber);
  return result;
}

Result<std::vector<uint64_t>> InFlightKeys::read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status(StatusCode::kNotFound, "cannot read " + path.string());
  std::vector<uint64_t> accounts;
  uint64_t account = 0;
  while (file.read(reinterpret_cast<char*>(&account), sizeof account)) {
    if (account != kNone) accounts.push_back(account);
  }
  return accounts;
}

InFlightKeys::~InFlightKeys() {
  if (slots_ != nullptr) munmap(slots_, 2 * sizeof(Slot) * fibers_);
}

InFlightKeys::InFlightKeys(InFlightKeys&& other) noexcept
    : slots_(std::exchange(other.slots_, nullptr)), fibers_(other.fibers_) {}

// Relaxed, because other processes read the file after the writer's death.
void InFlightKeys::begin(unsigned fiber, uint64_t from, uint64_t to) {
  slots_[2 * fiber].store(from, std::memory_order_relaxed);
  slots_[2 * fiber + 1].store(to, std::memory_order_relaxed);
}

void InFlightKeys::end(unsigned fiber) { begin(fiber, kNone, kNone); }

}  // namespace loam::cli
