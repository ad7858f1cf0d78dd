#include "benchmarks/harness/measure.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <utility>

#include <sched.h>
#include <sys/mman.h>

#include "common/base/assert.h"
#include "common/base/cpu_clock.h"
#include "common/base/env.h"

namespace loam::bench {
namespace {

constexpr size_t kHugePageBytes = 2 * 1024 * 1024;

}  // namespace

uint64_t thread_cpu_ns() { return loam::thread_cpu_ns(); }

uint64_t wall_ns() { return RealEnv::now_ns(); }

double Samples::quantile(double q) const {
  if (values.empty()) return 0;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double Samples::spread() const {
  const double middle = median();
  return middle == 0 ? 0 : (quantile(0.75) - quantile(0.25)) / std::abs(middle);
}

std::vector<Samples> alternate(size_t turns, std::span<const Variant> variants) {
  std::vector<Samples> results(variants.size());
  for (const Variant& variant : variants) do_not_optimize(variant.run());  // warms caches, pools and predictors
  for (size_t turn = 0; turn < turns; ++turn) {
    for (size_t i = 0; i < variants.size(); ++i) {
      // The reverse order of every second turn cancels a steady drift of the machine.
      const size_t chosen = turn % 2 == 0 ? i : variants.size() - 1 - i;
      results[chosen].values.push_back(variants[chosen].run());
    }
  }
  return results;
}

Samples ratio_of(const Samples& a, const Samples& b) {
  LOAM_CHECK(a.values.size() == b.values.size(), "samples of one alternation");
  Samples result;
  for (size_t i = 0; i < a.values.size(); ++i) result.values.push_back(a.values[i] / b.values[i]);
  return result;
}

const Samples& best_of(std::span<const Samples* const> probes, bool higher_is_better) {
  const Samples* best = probes.front();
  for (const Samples* probe : probes) {
    if (higher_is_better ? probe->median() > best->median() : probe->median() < best->median()) best = probe;
  }
  return *best;
}

HugeArena::HugeArena(size_t size_bytes) {
  const size_t size = round_up(std::max<size_t>(size_bytes, 1), kHugePageBytes);
  // Maps one huge page more than needed, so that the arena can begin on a boundary, and unmaps the rest.
  void* memory =
      mmap(nullptr, size + kHugePageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LOAM_CHECK(memory != MAP_FAILED, "no memory for a probe; use --quick or smaller data");
  auto* raw = static_cast<std::byte*>(memory);
  auto* begin = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(raw), kHugePageBytes));
  if (begin != raw) munmap(raw, static_cast<size_t>(begin - raw));
  std::byte* end = raw + size + kHugePageBytes;
  if (begin + size != end) munmap(begin + size, static_cast<size_t>(end - begin) - size);
  bytes_ = {begin, size};
  madvise(begin, size, MADV_HUGEPAGE);
  // Touches every page, so that no page fault falls into the measured time.
  for (size_t at = 0; at < size; at += 4096) begin[at] = std::byte{0};
}

HugeArena::~HugeArena() { munmap(bytes_.data(), bytes_.size()); }

double HugeArena::huge_share() const {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  double huge_kb = 0;
  while (std::getline(maps, line)) {
    unsigned long from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(bytes_.data());
      // The kernel may merge adjacent areas into one mapping. The result is then an upper bound.
      inside = from < at + bytes_.size() && to > at;
    } else if (unsigned long kb = 0; inside && std::sscanf(line.c_str(), "AnonHugePages: %lu kB", &kb) == 1) {
      huge_kb += static_cast<double>(kb);
    }
  }
  return std::min(1.0, huge_kb * 1024 / static_cast<double>(bytes_.size()));
}

size_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<size_t>(CPU_COUNT(&set));
}

double turn_ms(const std::function<double()>& once) {
  double seconds = 0;
  size_t times = 0;
  for (; seconds < kTurnSeconds; ++times) seconds += once();
  return 1e3 * seconds / static_cast<double>(times);
}

std::vector<size_t> last_cores(size_t count) {
  cpu_set_t set;
  std::vector<size_t> cores;
  LOAM_CHECK(sched_getaffinity(0, sizeof(set), &set) == 0, "the cores of this process cannot be read");
  for (size_t i = CPU_SETSIZE; i-- != 0 && cores.size() < count;) {
    if (CPU_ISSET(i, &set)) cores.push_back(i);
  }
  return cores;
}

ScopedAffinity::ScopedAffinity(std::span<const size_t> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const size_t core : cores) CPU_SET(core, &set);
  LOAM_CHECK(sched_getaffinity(0, sizeof(before_), &before_) == 0 && sched_setaffinity(0, sizeof(set), &set) == 0,
             "a core that may be used cannot be chosen");
}

ScopedAffinity::~ScopedAffinity() { sched_setaffinity(0, sizeof(before_), &before_); }

}  // namespace loam::bench
