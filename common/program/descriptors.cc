#include "common/program/descriptors.h"

#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace loam::program {

Status ensure_descriptors(size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));
    static_cast<void>(getrlimit(RLIMIT_NOFILE, &limit));
  }
  // Opens copies of a descriptor: the system has no call that counts the free descriptors of a process.
  std::vector<int> taken;
  taken.reserve(wanted);
  while (taken.size() < wanted) {
    const int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) break;
    taken.push_back(fd);
  }
  const size_t had = taken.size();
  for (const int fd : taken) close(fd);
  if (had == wanted) return ok_status();
  return {StatusCode::kNoSpace, "this process may open only " + std::to_string(limit.rlim_cur) + " files, of which " +
                                    std::to_string(had) + " are free, and it needs " + std::to_string(wanted) +
                                    "; raise the limit (ulimit -n, or LimitNOFILE of a service)"};
}

}  // namespace loam::program
