#include "common/base/env_sim.h"

#include <cstdio>
#include <cstdlib>

// The simulator implements these; the explorer's virtual threads neither block nor start others.

namespace loam {
namespace {

[[noreturn]] void refuse(const char* what) {
  std::fprintf(stderr, "this scheduler of virtual threads has no %s\n", what);
  std::abort();
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): those that start threads keep the body
uint64_t SimScheduler::spawn(const std::string&, std::function<void()>) { refuse("threads that start others"); }
void SimScheduler::join(uint64_t) { refuse("join()"); }
void SimScheduler::block(const void*, uint64_t) { refuse("block()"); }
void SimScheduler::wake(const void*) {}
const std::string& SimScheduler::process() { refuse("processes"); }
uint64_t SimScheduler::entropy() { refuse("entropy"); }

}  // namespace loam
