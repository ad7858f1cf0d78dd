// Starts a driver program with a socket pair as its stdin and stdout. The program ends when the socket is closed.
#include "benchmarks/peers/program.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <stdexcept>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace loam::bench {
namespace {

using nlohmann::json;

/// Time limit of a reply. A reply takes seconds, a load at most a minute.
constexpr int kAnswerMs = 600'000;

/// The part of a child between fork and exec: system calls only.
[[noreturn]] void become(char* const* arguments, int pipe) {
  if (prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && dup2(pipe, STDIN_FILENO) >= 0 && dup2(pipe, STDOUT_FILENO) >= 0) {
    execv(arguments[0], arguments);
  }
  _exit(127);
}

}  // namespace

PeerProgram::PeerProgram(Options options, pid_t pid, net::Fd pipe)
    : options_(std::move(options)), pid_(pid), pipe_(std::move(pipe)), first_(std::make_unique<json>()) {}

Result<std::unique_ptr<PeerProgram>> PeerProgram::start(Options options) {
  if (access(options.arguments.at(0).c_str(), X_OK) != 0) {
    return Status(StatusCode::kUnavailable, options.peer + " is not installed: run " + options.setup);
  }
  if (access(options.arguments.at(1).c_str(), R_OK) != 0) {
    return Status(StatusCode::kUnavailable,
                  options.arguments[1] + " is gone: build loam-bench again, in the tree that it measures");
  }
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) throw std::runtime_error("socketpair");
  net::Fd ours(ends[0]);
  net::Fd theirs(ends[1]);
  std::vector<char*> arguments;
  arguments.reserve(options.arguments.size() + 1);
  for (std::string& argument : options.arguments) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) become(arguments.data(), theirs.get());
  if (pid < 0) throw std::runtime_error("fork: error " + std::to_string(errno));
  theirs.reset();  // so that this process sees the end of the program
  std::unique_ptr<PeerProgram> program(new PeerProgram(std::move(options), pid, std::move(ours)));
  json& first = *program->first_;
  try {
    first = program->read_line();
  } catch (const std::runtime_error& error) {
    first = {{"error", error.what()}};
  }
  if (!first.contains("error")) return program;
  return Status(StatusCode::kUnavailable, program->options_.peer + " does not start (" +
                                              first["error"].get<std::string>() + "): run " + program->options_.setup);
}

PeerProgram::~PeerProgram() {
  pipe_.reset();  // the program ends with its input; an unfinished command is not needed any more
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

json PeerProgram::command(const json& command) {
  const std::string line = command.dump() + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = send(pipe_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw std::runtime_error(options_.peer + "'s process has ended");
    sent += static_cast<size_t>(n);
  }
  json answer = read_line();
  if (answer.contains("error")) throw std::runtime_error(options_.peer + ": " + answer["error"].get<std::string>());
  return answer;
}

json PeerProgram::read_line() {
  size_t end = 0;
  while ((end = read_.find('\n')) == std::string::npos) {
    pollfd waiting{.fd = pipe_.get(), .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, kAnswerMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) throw std::runtime_error(options_.peer + "'s process does not answer");
    std::array<char, 65'536> buffer;
    const ssize_t n = recv(pipe_.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw std::runtime_error(options_.peer + "'s process has ended");
    read_.append(buffer.data(), static_cast<size_t>(n));
  }
  const std::string line = read_.substr(0, end);
  read_.erase(0, end + 1);
  json answer = json::parse(line, nullptr, false);
  if (!answer.is_object()) throw std::runtime_error(options_.peer + "'s process said no JSON object: " + line);
  return answer;
}

}  // namespace loam::bench
