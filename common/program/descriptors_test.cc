#include "common/program/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace loam::program {
namespace {

/// Whether ensure_descriptors(20) in a process with these limits says what `says` is.
bool in_process_with(rlim_t soft, rlim_t hard, std::string_view says) {
  const pid_t child = fork();
  if (child == 0) {
    for (int fd = STDERR_FILENO + 1; fd < 256; ++fd) close(fd);
    const rlimit limit{soft, hard};
    setrlimit(RLIMIT_NOFILE, &limit);
    const Status status = ensure_descriptors(20);
    _exit(says.empty()
              ? (status.ok() ? 0 : 1)
              : (status == StatusCode::kNoSpace && status.message().find(says) != std::string_view::npos ? 0 : 1));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Descriptors, ATooLowLimitIsToldBeforeItIsReached) {
  EXPECT_TRUE(in_process_with(8, 8, "may open only 8 files, of which 5 are free, and it needs 20"));
  EXPECT_TRUE(in_process_with(22, 22, "of which 19 are free"));
  EXPECT_TRUE(in_process_with(23, 23, ""));
}

TEST(Descriptors, TheLimitIsRaisedToWhatTheSystemAllows) { EXPECT_TRUE(in_process_with(8, 64, "")); }

}  // namespace
}  // namespace loam::program
