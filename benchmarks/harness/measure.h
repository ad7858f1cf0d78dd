// Measurement tools of benchmarks: clocks, alternation of variants, medians, memory for probes.
//
// Machines are small, shared and noisy, so figures are ratios of variants that run in turns within one run: a
// disturbance of the machine then affects both variants. alternate() runs the variants in turns; ratio_of() divides
// turn by turn, and Samples::median() takes the median.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <sched.h>

#include "common/base/bytes.h"

namespace loam::bench {

/// CPU time of the calling thread, nanoseconds. Figures about the work of one thread use it, because it excludes other
/// threads on the same core.
uint64_t thread_cpu_ns();
/// Monotonic clock, nanoseconds.
uint64_t wall_ns();

/// Prevents the compiler from removing the computation of `value`.
template <class T>
inline void do_not_optimize(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

/// Repeated measurements of one quantity, in the order in which they were taken.
struct Samples {
  std::vector<double> values;

  double median() const { return quantile(0.5); }
  /// The quantile `q`, linearly interpolated between neighbours; 0 without samples.
  double quantile(double q) const;
  /// The interquartile range divided by the median: half of the samples lie within a range of this relative width.
  double spread() const;
};

/// One variant of a comparison. `run` does the work once and returns its measure (operations per second, nanoseconds,
/// …). It checks its answers and aborts the program if they are wrong.
struct Variant {
  std::string name;
  std::function<double()> run;
};

/// Runs all variants in turns: `turns` times, after one turn for warming up that does not count. Every second turn runs
/// them in reverse order. Returns one Samples for each variant.
std::vector<Samples> alternate(size_t turns, std::span<const Variant> variants);

/// The ratio a / b of each turn.
Samples ratio_of(const Samples& a, const Samples& b);
/// The probe with the best median, which serves as the ceiling of a figure. The best of each turn would not do: it
/// would add the noise of all probes in favour of the ceiling.
const Samples& best_of(std::span<const Samples* const> probes, bool higher_is_better);

/// Zeroed, pre-faulted memory, on huge pages where the system provides them. For probes; the product has its own page
/// pool.
class HugeArena {
 public:
  explicit HugeArena(size_t size_bytes);
  ~HugeArena();
  HugeArena(const HugeArena&) = delete;
  HugeArena& operator=(const HugeArena&) = delete;

  MutableBytes bytes() const { return bytes_; }
  /// Share of the memory on huge pages, from 0 to 1, by the kernel's account.
  double huge_share() const;

 private:
  MutableBytes bytes_;
};

/// Minimum duration of a turn of turn_ms(), in seconds.
inline constexpr double kTurnSeconds = 0.1;
/// Calls `once`, which returns the seconds of its work, until they sum up to kTurnSeconds. Returns their mean in
/// milliseconds.
double turn_ms(const std::function<double()>& once);

/// Number of processors that this process may use.
size_t usable_cores();
/// The last cores that this process may use, because the first core serves the interrupts on many machines. Fewer if it
/// may not use that many.
std::vector<size_t> last_cores(size_t count);

/// Pins the calling thread and the threads that it starts to these cores until destruction.
class ScopedAffinity {
 public:
  explicit ScopedAffinity(std::span<const size_t> cores);
  ~ScopedAffinity();
  ScopedAffinity(const ScopedAffinity&) = delete;
  ScopedAffinity& operator=(const ScopedAffinity&) = delete;

 private:
  cpu_set_t before_{};
};

}  // namespace loam::bench
