// Runs the two ends of a perftest program on this host and reads the number from the table that the client end
// prints.
#include "benchmarks/peers/perftest.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/thread.h"
#include "common/net/tcp/tcp_socket.h"

namespace loam::bench {
namespace {

/// Wait for the server to listen, because its client tries to connect only once.
constexpr int kAttempts = 100;
constexpr uint64_t kPauseNs = 100'000'000;

/// A program with its standard output and error. The destructor kills it if it still runs.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    output_.reset(ends[0]);
    const net::Fd theirs(ends[1]);
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && dup2(theirs.get(), STDOUT_FILENO) >= 0 &&
          dup2(theirs.get(), STDERR_FILENO) >= 0) {
        execvp(pointers[0], pointers.data());
      }
      _exit(127);
    }
    if (pid_ < 0) throw std::runtime_error("fork: error " + std::to_string(errno));
  }
  ~Program() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Reads to the end of its output. Returns the exit code.
  int finish(std::string& output) {
    std::array<char, 4'096> buffer;
    for (;;) {
      const ssize_t n = read(output_.get(), buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      output.append(buffer.data(), static_cast<size_t>(n));
    }
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  net::Fd output_;
  pid_t pid_ = -1;
};

/// The number in column `index` of the line of results, which begins with the size of the message.
std::optional<double> number_in(const std::string& output, size_t message_bytes, size_t index) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream columns(line);
    std::vector<double> numbers;
    for (double number = 0; columns >> number;) numbers.push_back(number);
    if (numbers.size() > index && numbers[0] == static_cast<double>(message_bytes)) return numbers[index];
  }
  return {};
}

/// Runs server and client; returns the client's result in column `index`.
Result<double> run(const std::string& program, const PerftestOptions& options, std::vector<std::string> more,
                   size_t index) {
  std::vector<std::string> arguments = {program, "-F",
                                        "-s",    std::to_string(options.message_bytes),
                                        "-n",    std::to_string(options.iterations),
                                        "-p",    std::to_string(options.port)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::vector<std::string> asking = arguments;
  asking.push_back(options.host);
  Program server(arguments);
  std::string output;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    output.clear();
    // The server end may not listen yet. A failed client end is started again.
    const int code = Program(asking).finish(output);
    if (code == 127) return Status(StatusCode::kUnavailable, program + " is not installed: package perftest");
    if (code == 0) {
      std::string served;
      server.finish(served);
      const auto number = number_in(output, options.message_bytes, index);
      if (number.has_value()) return *number;
      break;
    }
    sleep_ns(kPauseNs);
  }
  return Status(StatusCode::kUnavailable, program + " comes to no result: " + output);
}

}  // namespace

Result<double> perftest_round_trip_us(const PerftestOptions& options) {
  // Columns: bytes, iterations, minimum, maximum, typical; each is half of a round trip.
  LOAM_ASSIGN_OR_RETURN(const double half, run("ib_send_lat", options, {}, 4));
  return 2 * half;
}

Result<double> perftest_messages_per_s(const PerftestOptions& options) {
  // Columns: bytes, iterations, peak and average MB/s, millions of messages a second.
  LOAM_ASSIGN_OR_RETURN(
      const double millions,
      run("ib_send_bw", options, {"-t", std::to_string(options.window), "-r", std::to_string(2 * options.window)}, 4));
  return 1e6 * millions;
}

}  // namespace loam::bench
