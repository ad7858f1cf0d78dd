// Starts the servers, waits until they serve, and reads the CPU time of their threads from /proc. All servers share
// the last core, and the load generator has the first one.
#include "benchmarks/peers/server.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "benchmarks/harness/measure.h"
#include "common/net/tcp/tcp_socket.h"

namespace loam::bench {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kStartNs = 30'000'000'000;
constexpr uint64_t kEndNs = 10'000'000'000;
constexpr auto kPollInterval = std::chrono::milliseconds(5);
constexpr int kNoExec = 127;

cpu_set_t allowed_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) throw std::runtime_error("sched_getaffinity");
  return set;
}

std::vector<size_t> cores_of(const cpu_set_t& set) {
  std::vector<size_t> cores;
  for (size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) cores.push_back(i);
  }
  return cores;
}

cpu_set_t only(size_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return set;
}

/// The part of a child between fork and exec: system calls only.
[[noreturn]] void become(char* const* arguments, int log, const cpu_set_t& set) {
  const bool ready = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && sched_setaffinity(0, sizeof(set), &set) == 0 &&
                     dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0;
  if (ready) execvp(arguments[0], arguments);
  _exit(kNoExec);
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string whole(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return access(program.c_str(), X_OK) == 0;
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t end = rest.find(':');
    if (access((std::string(rest.substr(0, end)) + "/" + program).c_str(), X_OK) == 0) return true;
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return false;
}

fs::path program_folder(const Servers::Options& options) {
  return options.programs.empty() ? fs::read_symlink("/proc/self/exe").parent_path() : options.programs;
}

}  // namespace

std::map<std::string, uint64_t> thread_times(pid_t process) {
  std::map<std::string, uint64_t> times;
  std::error_code error;
  // The kernel counts the time that each thread ran, in nanoseconds, in the first column of schedstat.
  const fs::path tasks = "/proc/" + std::to_string(process) + "/task";
  for (fs::directory_iterator task(tasks, error), end; !error && task != end; task.increment(error)) {
    times[first_line(task->path() / "comm")] +=
        std::strtoull(first_line(task->path() / "schedstat").c_str(), nullptr, 10);
  }
  return times;
}

std::optional<std::string> serving_address(std::string_view line) {
  constexpr std::string_view kSays = "serving at ";
  const size_t at = line.find(kSays);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(at + kSays.size());
  return std::string(rest.substr(0, rest.find_first_of(", \r\n")));
}

net::Address free_address() {
  // The port is free again when the listener is closed. Another process may take it before the server does, and the
  // server then fails to start.
  const net::Address any{net::Scheme::kTcp, "127.0.0.1", 0};
  const auto resolved = net::resolve(any);
  if (!resolved.ok()) throw std::runtime_error(resolved.status().to_string());
  const auto listening = net::listen_on(resolved->front(), any);
  if (!listening.ok()) throw std::runtime_error(listening.status().to_string());
  return net::local_address(listening->get()).to_address();
}

// ---- ServerProcess --------------------------------------------------------------------------------------------------

ServerProcess::ServerProcess(const Options& options) : options_(options) {
  const net::Fd log(open(options_.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!log) throw std::runtime_error("cannot write " + options_.log.string());
  std::vector<char*> arguments = {const_cast<char*>(options_.program.c_str())};
  for (const std::string& argument : options_.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const cpu_set_t core = only(options_.core);
  pid_ = fork();
  if (pid_ == 0) become(arguments.data(), log.get(), core);
  if (pid_ < 0) throw std::runtime_error("fork: " + net::error_text(errno));
}

ServerProcess::~ServerProcess() {
  if (!running()) return;
  // Asks the server to end. A server that does not end in time is killed.
  kill(pid_, SIGTERM);
  for (const uint64_t until_ns = wall_ns() + kEndNs; running() && wall_ns() < until_ns;) {
    std::this_thread::sleep_for(kPollInterval);
  }
  if (!running()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool ServerProcess::running() const { return pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0; }

void ServerProcess::fail(const std::string& what) const {
  throw std::runtime_error(options_.program + " " + what + "; its log: " + whole(options_.log));
}

ServerCpu ServerProcess::cpu() const {
  ServerCpu cpu;
  bool found = false;
  for (const auto& [name, ns] : thread_times(pid_)) {
    cpu.process_ns += ns;
    if (!name.starts_with(options_.serving_thread)) continue;
    cpu.serving_ns += ns;
    found = true;
  }
  if (!found) fail("has no thread " + options_.serving_thread);
  return cpu;
}

std::string ServerProcess::wait_serving() const {
  for (const uint64_t until_ns = wall_ns() + kStartNs; wall_ns() < until_ns;) {
    std::ifstream log(options_.log);
    for (std::string line; std::getline(log, line);) {
      if (auto address = serving_address(line); address && !log.eof()) return std::move(*address);
    }
    if (!running()) fail("has ended");
    std::this_thread::sleep_for(kPollInterval);
  }
  fail("does not serve");
}

void ServerProcess::wait_listening(const net::Address& address) const {
  const auto where = net::resolve(address);
  if (!where.ok()) fail(where.status().to_string());
  for (const uint64_t until_ns = wall_ns() + kStartNs; wall_ns() < until_ns;) {
    const net::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), where->front().get(), where->front().size) == 0) return;
    if (!running()) fail("has ended");
    std::this_thread::sleep_for(kPollInterval);
  }
  fail("does not listen at " + address.to_string());
}

// ---- Servers --------------------------------------------------------------------------------------------------------

std::string Servers::missing(const Options& options) {
  if (usable_cores() < 2) return "needs two cores: one for the servers, one for the load generator";
  for (const char* program : {"loam-storage-node", "loam-commit-manager"}) {
    const fs::path path = program_folder(options) / program;
    if (!fs::exists(path)) return path.string() + " is not built: make build";
  }
  if (!in_path(options.memcached)) return "no program " + options.memcached + ": scripts/setup installs Debian's";
  return {};
}

Servers::Servers(const Options& options) : cores_before_(allowed_cores()) {
  const std::vector<size_t> cores = cores_of(cores_before_);
  const size_t core = cores.back();
  std::string folder = (fs::temp_directory_path() / "loam-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder " + folder);
  folder_ = folder;
  const fs::path programs = program_folder(options);
  const auto bytes = std::to_string(options.memory_bytes);
  manager_ = std::make_unique<ServerProcess>(ServerProcess::Options{
      programs / "loam-commit-manager",
      // Nothing renews the sessions, and one snapshot stays open for the whole comparison. The long lease and age
      // keep the commit manager from ending them, so that the node gets no messages besides the load.
      {"--listen", "tcp://127.0.0.1:0", "--admin", "", "--client-lease", "3600s", "--max-transaction-age", "3600s"},
      folder_ / "commit-manager.log",
      core,
      ""});
  manager_address_ = manager_->wait_serving();
  node_ = std::make_unique<ServerProcess>(
      ServerProcess::Options{programs / "loam-storage-node",
                             {"--listen", "tcp://127.0.0.1:0", "--admin", "", "--manager", manager_address_, "--memory",
                              bytes, "--network-threads", "1", "--spin", options.spin},
                             folder_ / "storage-node.log",
                             core,
                             "loam-net"});
  node_->wait_serving();
  memcached_address_ = free_address();
  memcached_ = std::make_unique<ServerProcess>(ServerProcess::Options{
      options.memcached,
      {"-u", "root", "-t", "1", "-U", "0", "-l", memcached_address_.host, "-p", std::to_string(memcached_address_.port),
       "-m", std::to_string(options.memory_bytes >> 20), "-R", std::to_string(options.requests_per_event)},
      folder_ / "memcached.log",
      core,
      "mc-worker"});
  memcached_->wait_listening(memcached_address_);
  const cpu_set_t own = only(cores.front());
  sched_setaffinity(0, sizeof(own), &own);
}

Servers::~Servers() {
  sched_setaffinity(0, sizeof(cores_before_), &cores_before_);
  memcached_.reset();
  node_.reset();
  manager_.reset();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace loam::bench
