#include "tests/sim/disk.h"

#include "common/base/thread.h"

namespace loam::sim {
namespace {

/// An fsync takes from some microseconds to many milliseconds.
constexpr uint64_t kShortestStoreNs = 5'000;
constexpr uint64_t kStoreScales = 12;

}  // namespace

Status SimDisk::store(Bytes state) {
  const uint64_t time_ns = kShortestStoreNs << world_.random().below(kStoreScales);
  const uint64_t before_ns = world_.random().below(time_ns);
  Env::pause_point("manager.durable.before");
  sleep_ns(before_ns);  // a process that dies here has stored nothing
  Env::pause_point("manager.durable.beside");
  Env::pause_point("manager.durable.written");
  state_.assign(state.begin(), state.end());
  Env::pause_point("manager.durable.renamed");
  sleep_ns(time_ns - before_ns);  // one that dies here has, and nobody knows
  Env::pause_point("manager.durable.after");
  return ok_status();
}

}  // namespace loam::sim
