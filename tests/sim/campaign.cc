// Seeds in child processes. A child runs a batch of seeds and writes one line for each to a pipe. The parent learns
// the seed of a death from the number of lines before it.
#include "tests/sim/campaign.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/assert.h"

namespace loam::sim {
namespace {

using nlohmann::json;

/// Seeds of one child process: many enough that the cost of the fork does not count, few enough that the memory which
/// crashed simulated processes leave behind stays small.
constexpr uint64_t kBatch = 16;
/// A run takes some ten milliseconds. A run that takes this much processor time is in an endless loop. The limit
/// counts processor time, because elapsed time also depends on other programs.
constexpr unsigned kHangSeconds = 20;
/// Limit of elapsed time. A run never waits, so a run that is not done by then sleeps in a system call or gets no
/// processor.
constexpr unsigned kStandstillSeconds = 1'200;
constexpr size_t kMaxErrorBytes = 4'000;

/// Starts the timers anew. SIGPROF or SIGALRM ends this process unless it calls this again in time.
void limit_time() {
  const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = kHangSeconds, .tv_usec = 0}};
  LOAM_CHECK(setitimer(ITIMER_PROF, &limit, nullptr) == 0, "no timer of processor time");
  alarm(kStandstillSeconds);
}

json to_json(const RunReport& report) {
  return {{"seed", report.seed},
          {"failed", report.failed},
          {"invariant", report.invariant},
          {"message", report.message},
          {"events", report.events},
          {"hash", report.hash},
          {"simulated_ns", report.simulated_ns},
          {"faults", report.faults},
          {"transactions", report.transactions},
          {"commits", report.commits},
          {"probes", report.probes}};
}

RunReport from_json(const json& from) {
  RunReport report;
  report.seed = from.at("seed").get<uint64_t>();
  report.failed = from.at("failed").get<bool>();
  report.invariant = from.at("invariant").get<std::string>();
  report.message = from.at("message").get<std::string>();
  report.events = from.at("events").get<uint64_t>();
  report.hash = from.at("hash").get<uint64_t>();
  report.simulated_ns = from.at("simulated_ns").get<uint64_t>();
  report.faults = from.at("faults").get<uint64_t>();
  report.transactions = from.at("transactions").get<uint64_t>();
  report.commits = from.at("commits").get<uint64_t>();
  for (const auto& [name, count] : from.at("probes").items()) report.probes[name] = count.get<uint64_t>();
  return report;
}

/// A child process that runs one seed after another and writes a line for each.
class Child {
 public:
  /// The child calls `body`, which makes the plans, so the parent's memory stays small.
  Child(std::vector<uint64_t> seeds, const std::function<RunReport(uint64_t)>& body) : seeds_(std::move(seeds)) {
    std::array<int, 2> ends{};
    errors_ = memfd_create("stderr", 0);
    LOAM_CHECK(errors_ >= 0 && pipe(ends.data()) == 0, "no pipe for a child process");
    pid_ = fork();
    LOAM_CHECK(pid_ >= 0, "no child process");
    if (pid_ == 0) {
      close(ends[0]);
      dup2(errors_, 2);
      for (const uint64_t seed : seeds_) {
        limit_time();
        const std::string line = to_json(body(seed)).dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
        for (size_t at = 0; at < line.size();) {
          const ssize_t written = write(ends[1], line.data() + at, line.size() - at);
          if (written <= 0) _exit(3);
          at += static_cast<size_t>(written);
        }
      }
      _exit(0);
    }
    close(ends[1]);
    from_ = ends[0];
  }
  ~Child() {
    close(from_);
    close(errors_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int descriptor() const { return from_; }

  /// Reads the lines that have arrived. False when the child has ended.
  bool read_some(std::vector<RunReport>& reports) {
    std::array<char, 65'536> buffer;
    const ssize_t count = read(from_, buffer.data(), buffer.size());
    if (count <= 0) return false;
    text_.append(buffer.data(), static_cast<size_t>(count));
    for (size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1)) {
      reports.push_back(from_json(json::parse(text_.substr(0, end))));
      ++done_;
    }
    return true;
  }

  /// Call after read_some() returned false: if the child died during a seed, fills in the report of that seed.
  bool died(RunReport& report) {
    int status = 0;
    waitpid(pid_, &status, 0);
    if (done_ == seeds_.size()) return false;
    report.seed = seeds_[done_];
    report.failed = true;
    const bool hang = WIFSIGNALED(status) && (WTERMSIG(status) == SIGPROF || WTERMSIG(status) == SIGALRM);
    report.invariant = hang ? "hang" : "assertion";
    report.message = hang ? "the run did not end within " + std::to_string(kHangSeconds) + " s of processor time, or " +
                                std::to_string(kStandstillSeconds) + " s of elapsed time"
                          : "the process died" +
                                (WIFSIGNALED(status) ? " of signal " + std::to_string(WTERMSIG(status)) : "") + ": ";
    std::string errors(kMaxErrorBytes, '\0');
    const off_t size = lseek(errors_, 0, SEEK_END);
    const off_t from = std::max<off_t>(0, size - static_cast<off_t>(kMaxErrorBytes));
    errors.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(errors_, errors.data(), errors.size(), from))));
    report.message += errors;
    ++done_;
    return true;
  }
  void end() { kill(pid_, SIGKILL); }
  std::vector<uint64_t> rest() const { return {seeds_.begin() + static_cast<std::ptrdiff_t>(done_), seeds_.end()}; }

 private:
  std::vector<uint64_t> seeds_;
  size_t done_ = 0;
  pid_t pid_ = -1;
  int from_ = -1;
  int errors_ = -1;
  std::string text_;
};

double children_seconds() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void add(CampaignReport& total, const RunReport& run) {
  ++total.seeds;
  total.failures += run.failed ? 1 : 0;
  total.events += run.events;
  total.faults += run.faults;
  total.transactions += run.transactions;
  total.commits += run.commits;
  for (const auto& [name, count] : run.probes) total.probes[name] += count;
}

}  // namespace

CampaignReport run_campaign(const CampaignOptions& options, const std::function<void(const RunReport&)>& on_run) {
  CampaignReport total;
  const auto begin = std::chrono::steady_clock::now();
  const double cpu_begin = children_seconds();
  uint64_t next = options.first_seed;
  const uint64_t end = options.first_seed + options.seeds;
  bool stop = false;
  std::vector<std::unique_ptr<Child>> children;
  const auto body = [](uint64_t seed) { return run(make_plan(seed)); };
  std::vector<uint64_t> left;  // seeds of a batch whose child died
  while (!children.empty() || (!stop && (next < end || !left.empty()))) {
    // Starts children until all jobs are in use. The rest of a batch whose child died comes first.
    while (!stop && children.size() < options.jobs && (next < end || !left.empty())) {
      std::vector<uint64_t> seeds = std::exchange(left, {});
      for (; seeds.empty() && next < end;) {
        const uint64_t count = std::min(kBatch, end - next);
        seeds.resize(count);
        std::iota(seeds.begin(), seeds.end(), next);
        next += count;
      }
      children.push_back(std::make_unique<Child>(std::move(seeds), body));
    }
    std::vector<pollfd> ready;
    for (const auto& child : children) ready.push_back({child->descriptor(), POLLIN, 0});
    poll(ready.data(), ready.size(), -1);
    // Takes the reports that have arrived. The backward order permits the removal of ended children.
    for (size_t i = children.size(); i-- > 0;) {
      if (ready[i].revents == 0) continue;
      std::vector<RunReport> reports;
      const bool lives = children[i]->read_some(reports);
      RunReport death;
      if (!lives && children[i]->died(death)) {
        reports.push_back(death);
        left = children[i]->rest();
      }
      if (!lives) children.erase(children.begin() + static_cast<std::ptrdiff_t>(i));
      for (const RunReport& report : reports) {
        if (stop) break;
        add(total, report);
        on_run(report);
        stop = report.failed && options.stop_at_failure;
      }
    }
    if (stop) {
      for (auto& child : children) child->end();
    }
  }
  total.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  total.cpu_seconds = children_seconds() - cpu_begin;
  return total;
}

RunReport run_in_child_process(const Plan& plan, const std::vector<size_t>& without) {
  Child child({plan.seed}, [&](uint64_t) { return run(plan, {without, {}}); });
  std::vector<RunReport> reports;
  while (child.read_some(reports)) {
  }
  RunReport death;
  if (child.died(death)) return death;
  return reports.front();
}

std::vector<size_t> shrink(const Plan& plan, const std::string& invariant) {
  std::vector<size_t> without;
  const auto fails = [&](const std::vector<size_t>& left_out) {
    const RunReport report = run_in_child_process(plan, left_out);
    return report.failed && report.invariant == invariant;
  };
  std::vector<size_t> all(plan.faults.size());
  std::iota(all.begin(), all.end(), 0);
  // A plan that fails without any fault needs none of them.
  if (fails(all)) return {};
  // Begins with the last fault, because faults after the violation can always go. Repeats until no fault can be left
  // out.
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = plan.faults.size(); i-- > 0;) {
      if (std::ranges::find(without, i) != without.end()) continue;
      without.push_back(i);
      if (fails(without)) {
        changed = true;
      } else {
        without.pop_back();
      }
    }
  }
  std::vector<size_t> needed;
  for (const size_t i : all) {
    if (std::ranges::find(without, i) == without.end()) needed.push_back(i);
  }
  return needed;
}

}  // namespace loam::sim
