// How benchmarks measure: clocks, alternation of variants, medians, memory for probes.
//
// Machines are small, shared and noisy, so figures are ratios of variants that take turns within one run: what disturbs
// the machine disturbs both. `alternate` runs them so; `ratio_of` divides turn by turn and takes the median.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/bytes.h"

namespace loam::bench {

/// CPU time of the calling thread, nanoseconds. What a figure of one thread's work uses: others on the core do not
/// count.
uint64_t thread_cpu_ns();
/// Monotonic clock, nanoseconds.
uint64_t wall_ns();

/// Makes the compiler believe that `value` is used.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

/// Repeated measurements of one thing, in the order in which they were taken.
struct Samples {
  std::vector<double> values;

  double median() const { return quantile(0.5); }
  /// Linear between neighbours; 0 of nothing.
  double quantile(double q) const;
  /// Distance of the quartiles over the median: half of the samples lie within that much of each other.
  double spread() const;
};

/// One of the things compared: `run` does the work once and returns its measure (operations a second, nanoseconds, …).
/// It checks its answers and aborts if they are wrong.
struct Variant {
  std::string name;
  std::function<double()> run;
};

/// Runs all variants in turn, `turns` times, after one turn that does not count; the order is reversed in every other
/// turn. One Samples a variant.
std::vector<Samples> alternate(size_t turns, std::span<const Variant> variants);

/// a over b, turn by turn.
Samples ratio_of(const Samples& a, const Samples& b);
/// The probe with the best median: the ceiling is what the best of several reaches. (Not the best of each turn: that
/// would count the noise of all of them in the ceiling's favour.)
const Samples& best_of(std::span<const Samples* const> probes, bool higher_is_better);

/// Zeroed memory on huge pages where the system gives them, faulted in. For probes: the product has its own page pool.
class HugeArena {
 public:
  explicit HugeArena(size_t size_bytes);
  ~HugeArena();
  HugeArena(const HugeArena&) = delete;
  HugeArena& operator=(const HugeArena&) = delete;

  MutableBytes bytes() const { return bytes_; }
  /// Share of the memory that lies on huge pages, 0 to 1, as the kernel tells.
  double huge_share() const;

 private:
  MutableBytes bytes_;
};

/// Processors that this process may use.
size_t usable_cores();

}  // namespace loam::bench
