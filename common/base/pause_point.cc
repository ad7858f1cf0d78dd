// Entries of LOAM_PAUSE (ArmedPoint) and callbacks of tests (Hook::Entry), and act(), which performs those that are
// due.
#include "common/base/pause_point.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include <unistd.h>

namespace loam {
namespace {

enum class Action : uint8_t { kStop, kKill, kBlock };

struct ArmedPoint {
  std::string name;
  uint64_t passes_left = 1;  // the action takes place at the pass that finds 1
  Action action{};
  std::string path;  // kBlock: the file that ends the wait
};

Status wrong(std::string_view entry, std::string_view why) {
  return {StatusCode::kInvalidArgument, "pause point '" + std::string(entry) + "': " + std::string(why) +
                                            "; expected NAME[@N]=stop, NAME[@N]=kill or NAME[@N]=block:PATH"};
}

Result<ArmedPoint> parse(std::string_view entry) {
  constexpr std::string_view kBlock = "block:";
  const size_t equals = entry.find('=');
  if (equals == std::string_view::npos) return wrong(entry, "no '='");
  std::string_view name = entry.substr(0, equals);
  const std::string_view action = entry.substr(equals + 1);
  ArmedPoint armed;
  if (const size_t at = name.find('@'); at != std::string_view::npos) {
    const std::string_view count = name.substr(at + 1);
    const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), armed.passes_left);
    if (error != std::errc() || end != count.data() + count.size() || armed.passes_left == 0)
      return wrong(entry, "the number after '@' must be 1 or more");
    name = name.substr(0, at);
  }
  if (name.empty()) return wrong(entry, "no name");
  armed.name = name;
  if (action == "stop") {
    armed.action = Action::kStop;
  } else if (action == "kill") {
    armed.action = Action::kKill;
  } else if (action.starts_with(kBlock) && action.size() > kBlock.size()) {
    armed.action = Action::kBlock;
    armed.path = action.substr(kBlock.size());
  } else {
    return wrong(entry, "unknown action '" + std::string(action) + "'");
  }
  return armed;
}

/// Performs an action in the thread that reached the pause point. Returns if the process or thread continues.
void perform(const ArmedPoint& armed) {
  const auto open = [&] { return access(armed.path.c_str(), F_OK) == 0; };
  // A block whose file exists already does not stop the thread, and reports nothing.
  if (armed.action == Action::kBlock && open()) return;
  const std::string line = "loam: paused at " + armed.name + "\n";
  // One unbuffered write: a buffer would be lost when the process is killed.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) std::abort();
  switch (armed.action) {
    case Action::kStop:
      raise(SIGSTOP);
      return;
    case Action::kKill:
      raise(SIGKILL);
      // SIGKILL may take a moment; the thread must not pass the place meanwhile.
      while (true) pause();
    case Action::kBlock:
      while (!open()) {
        const timespec millisecond{.tv_sec = 0, .tv_nsec = 1'000'000};
        nanosleep(&millisecond, nullptr);  // poll interval
      }
      return;
  }
}

}  // namespace

struct PausePoints::Hook::Entry {
  std::string name;
  Callback callback;
  uint64_t running = 0;  // running calls; guarded by State::mutex
};

class PausePoints::State {
 public:
  static State& get() {
    static State* const state = new State;  // never destroyed: threads may pass while the process exits
    return *state;
  }

  std::mutex mutex;
  std::condition_variable call_ended;
  // Guarded by mutex:
  std::vector<ArmedPoint> armed;
  std::vector<std::shared_ptr<Hook::Entry>> hooks;
};

PausePoints::Hook::~Hook() { disarm(); }

PausePoints::Hook& PausePoints::Hook::operator=(Hook&& other) noexcept {
  if (this != &other) {
    disarm();
    entry_ = std::move(other.entry_);
  }
  return *this;
}

// Removes the entry first, so that no new call begins, and then waits for the running calls. The callback may use
// objects of the test that end with the hook.
void PausePoints::Hook::disarm() {
  if (entry_ == nullptr) return;
  State& state = State::get();
  std::unique_lock lock(state.mutex);
  std::erase(state.hooks, entry_);
  state.call_ended.wait(lock, [&] { return entry_->running == 0; });
  entry_.reset();
}

PausePoints::Hook PausePoints::on(std::string_view name, Callback callback) {
  auto entry = std::make_shared<Hook::Entry>();
  entry->name = name;
  entry->callback = std::move(callback);
  State& state = State::get();
  const std::lock_guard lock(state.mutex);
  state.hooks.push_back(entry);
  armed_.store(true, std::memory_order_relaxed);  // see armed()
  return Hook(std::move(entry));
}

Status PausePoints::arm(std::string_view list) {
  // Parses the whole list before it arms anything, so that an error arms nothing.
  std::vector<ArmedPoint> entries;
  while (!list.empty()) {
    const size_t end = list.find(';');
    LOAM_ASSIGN_OR_RETURN(ArmedPoint entry, parse(list.substr(0, end)));
    entries.push_back(std::move(entry));
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
  }
  if (entries.empty()) return ok_status();
  State& state = State::get();
  const std::lock_guard lock(state.mutex);
  std::move(entries.begin(), entries.end(), std::back_inserter(state.armed));
  armed_.store(true, std::memory_order_relaxed);  // see armed()
  return ok_status();
}

void PausePoints::disarm() {
  State& state = State::get();
  const std::lock_guard lock(state.mutex);
  state.armed.clear();
}

void PausePoints::act(const char* name) {
  State& state = State::get();
  // Collects the due actions under the lock, and performs them without it: an action may block this thread for long.
  std::vector<ArmedPoint> due;
  std::vector<std::shared_ptr<Hook::Entry>> calls;
  {
    const std::lock_guard lock(state.mutex);
    std::erase_if(state.armed, [&](ArmedPoint& armed) {
      if (armed.name != name) return false;
      if (armed.passes_left > 1) {
        --armed.passes_left;
        return false;
      }
      due.push_back(armed);
      // A block stays armed for the threads that come later; the other actions take place once.
      return armed.action != Action::kBlock;
    });
    // The count keeps the destructor of the hook waiting: the callback runs without the lock, because it may block.
    for (const auto& hook : state.hooks)
      if (hook->name == name) calls.push_back(hook), ++hook->running;
  }
  // A destructor ends the calls, because a callback may throw to test how the code at this place handles an exception.
  struct End {
    State& state;
    const std::vector<std::shared_ptr<Hook::Entry>>& calls;
    ~End() {
      if (calls.empty()) return;
      {
        const std::lock_guard lock(state.mutex);
        for (const auto& call : calls) --call->running;
      }
      state.call_ended.notify_all();
    }
  } const end{state, calls};
  for (const ArmedPoint& armed : due) perform(armed);
  for (const auto& call : calls) call->callback();
}

namespace {

/// Arms LOAM_PAUSE before main(). A malformed list ends the process, because a test would wait in vain otherwise.
[[maybe_unused]] const bool kArmedFromEnvironment = [] {
  const char* list = std::getenv("LOAM_PAUSE");
  if (list == nullptr) return false;
  const Status status = PausePoints::arm(list);
  if (!status.ok()) {
    std::fprintf(stderr, "LOAM_PAUSE: %s\n", status.to_string().c_str());
    std::_Exit(2);
  }
  return true;
}();

}  // namespace
}  // namespace loam
