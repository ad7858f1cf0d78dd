#include "common/fiber/task.h"

#include <cstdio>
#include <exception>

namespace loam::fiber {

bool run_to_end(Task& task, uint64_t number) {
  bool returned = false;
  try {
    task();
    returned = true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "loam: an exception ended fiber %lu: %s\n", number, error.what());
  } catch (...) {
    std::fprintf(stderr, "loam: an exception ended fiber %lu\n", number);
  }
  // Destroys the captured objects here, in the fiber, because their destructors may wait.
  task.reset();
  return returned;
}

}  // namespace loam::fiber
