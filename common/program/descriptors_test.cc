#include "common/program/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace loam::program {
namespace {

/// Calls ensure_descriptors(20) in a child process with these limits. Returns whether the message of its error contains
/// `says`; if `says` is empty, whether it succeeds.
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

TEST(Descriptors, ReportsATooLowLimitAtOnce) {
  EXPECT_TRUE(in_process_with(8, 8, "may open only 8 files, of which 5 are free, and it needs 20"));
  EXPECT_TRUE(in_process_with(22, 22, "of which 19 are free"));
  EXPECT_TRUE(in_process_with(23, 23, ""));
}

TEST(Descriptors, RaisesTheSoftLimitToTheHardLimit) { EXPECT_TRUE(in_process_with(8, 64, "")); }

}  // namespace
}  // namespace loam::program
