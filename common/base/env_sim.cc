#include "common/base/env_sim.h"

#include <cstdio>
#include <cstdlib>

// Defaults of the functions that the simulator alone implements. A virtual thread of the explorer neither blocks nor
// starts threads, so a call of these is an error of the test and aborts. Only wake() is harmless: it resumes nothing.

namespace loam {
namespace {

[[noreturn]] void refuse(const char* what) {
  std::fprintf(stderr, "this scheduler of virtual threads does not support %s\n", what);
  std::abort();
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): schedulers that start threads store the body
uint64_t SimScheduler::spawn(const std::string&, std::function<void()>) { refuse("spawn()"); }
void SimScheduler::join(uint64_t) { refuse("join()"); }
void SimScheduler::block(const void*, uint64_t) { refuse("block()"); }
void SimScheduler::wake(const void*) {}
const std::string& SimScheduler::process() { refuse("process()"); }
uint64_t SimScheduler::entropy() { refuse("entropy()"); }

}  // namespace loam
