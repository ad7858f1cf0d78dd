#include "common/program/standard_streams.h"

#include <csignal>
#include <functional>
#include <iostream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace loam::program {
namespace {

/// Runs `body` in a child process and returns its result. The child has no StandardStreams object, as a program at the
/// start of main().
int in_child(const std::function<int()>& body) {
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Opens a file under the number of an open descriptor.
void replace(int fd, const char* path, int flags) {
  const int opened = open(path, flags);
  dup2(opened, fd);
  close(opened);
}

TEST(StandardStreams, OtherFilesNeverGetAClosedStandardDescriptor) {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    EXPECT_EQ(in_child([fd] {
                close(fd);
                const StandardStreams streams;
                return open("/dev/null", O_RDWR) > STDERR_FILENO ? 0 : 1;
              }),
              0)
        << fd;
  }
  EXPECT_GE(in_child([] {
              for (int fd = 0; fd < 3; ++fd) close(fd);
              const StandardStreams streams;
              return open("/dev/null", O_RDWR);
            }),
            3);
}

TEST(StandardStreams, WritesToAClosedOutputFail) {
  EXPECT_EQ(in_child([] {
              close(STDOUT_FILENO);
              StandardStreams streams;
              std::cout << "lost" << std::endl;
              const Status status = streams.finish();
              return !status.ok() && status.message().find("EBADF") != std::string_view::npos && !std::cout ? 0 : 1;
            }),
            0);
  EXPECT_EQ(in_child([] {
              close(STDOUT_FILENO);
              close(STDERR_FILENO);
              StandardStreams streams;
              return streams.finish().ok() ? 0 : 1;
            }),
            0)
      << "nothing was printed, so nothing is lost";
}

TEST(StandardStreams, ReportsAFullDiskForEveryOutputSize) {
  for (const size_t bytes : {size_t{1}, size_t{4'096}, size_t{65'536}, size_t{65'537}, size_t{1'000'000}}) {
    EXPECT_EQ(
        in_child([bytes] {
          replace(STDOUT_FILENO, "/dev/full", O_WRONLY);
          StandardStreams streams;
          std::cout << std::string(bytes, 'x');
          const Status status = streams.finish();
          return status.message() == "the standard output cannot be written: No space left on device (ENOSPC)" ? 0 : 1;
        }),
        0)
        << bytes;
  }
  EXPECT_EQ(in_child([] {
              replace(STDERR_FILENO, "/dev/full", O_WRONLY);
              StandardStreams streams;
              std::cerr << "lost";
              return streams.finish().message().find("standard error") != std::string_view::npos ? 0 : 1;
            }),
            0);
}

TEST(StandardStreams, StreamTurnsBadWhenTheReaderIsGone) {
  EXPECT_EQ(in_child([] {
              signal(SIGPIPE, SIG_IGN);
              int pipe_ends[2];
              if (pipe(pipe_ends) != 0) return 2;
              dup2(pipe_ends[1], STDOUT_FILENO);
              close(pipe_ends[0]);
              StandardStreams streams;
              size_t lines = 0;
              while (std::cout && lines < 1'000'000) {
                std::cout << "a line of some length\n";
                ++lines;
              }
              return lines < 10'000 && !streams.finish().ok() ? 0 : 1;
            }),
            0);
}

TEST(StandardStreams, WritesAllInOrder) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_EQ(in_child([&] {
              dup2(pipe_ends[1], STDOUT_FILENO);
              StandardStreams streams;
              std::cout << "one " << 2 << ' ' << std::flush << "three\n";
              std::cout.put('4');
              return streams.finish().ok() ? 0 : 1;
            }),
            0);
  close(pipe_ends[1]);
  std::string text(64, ' ');
  const ssize_t size = read(pipe_ends[0], text.data(), text.size());
  close(pipe_ends[0]);
  ASSERT_GT(size, 0);
  EXPECT_EQ(text.substr(0, static_cast<size_t>(size)), "one 2 three\n4");
}

}  // namespace
}  // namespace loam::program
