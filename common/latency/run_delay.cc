// The second number of /proc/thread-self/schedstat: "time on a core, time ready and waiting, number of time slices".
#include "common/latency/run_delay.h"

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/env.h"

namespace loam::latency {

RunDelay::RunDelay() {
  if constexpr (!Env::kSimulated) {
    file_ = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    last_ns_ = read_ns();
  }
}

RunDelay::~RunDelay() {
  if (file_ >= 0) ::close(file_);
}

uint64_t RunDelay::read_ns() const {
  std::array<char, 96> text;
  const ssize_t size = file_ < 0 ? -1 : ::pread(file_, text.data(), text.size(), 0);
  if (size <= 0) return last_ns_;
  const std::string_view line(text.data(), static_cast<size_t>(size));
  const size_t space = line.find(' ');
  uint64_t ns = last_ns_;
  if (space != std::string_view::npos) std::from_chars(line.data() + space + 1, line.data() + line.size(), ns);
  return ns;
}

uint64_t RunDelay::since_last_ns() {
  const uint64_t now_ns = read_ns();
  return now_ns - std::exchange(last_ns_, now_ns);
}

}  // namespace loam::latency
