// The event loop, the virtual threads and the clocks of a simulated run. Virtual time moves from event to event, and
// by a little at each read of a clock.
#include "tests/sim/simulator.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"

namespace loam::sim {
namespace {

/// Mean time of one step of a thread: a part of it always passes, so that no loop runs without virtual time, and the
/// rest is random.
constexpr uint64_t kStepNs = 200;
constexpr uint64_t kStepSpreadNs = 800;
/// Time that passes when a thread reads the clock, so that loops which poll the clock without blocking end.
constexpr uint64_t kReadClockNs = 5;
constexpr uint64_t kYieldNs = 200;
constexpr int64_t kMillion = 1'000'000;

void mix(uint64_t& hash, uint64_t value) {
  hash ^= value;
  hash *= 0x100000001b3u;
  hash ^= hash >> 29;
}

}  // namespace

Simulator::Simulator(uint64_t seed) : random_(seed) {
  LOAM_CHECK(sim_scheduler == nullptr, "one simulator at a time");
  sim_scheduler = this;
}

Simulator::~Simulator() {
  for (auto& thread : threads_) {
    // A thread of a dead process has live objects on its stack, which must not be destroyed: their process crashed.
    if (!thread->ended) testing::VirtualThread::abandon(std::move(thread->stack));
  }
  sim_scheduler = nullptr;
}

// ---- processes ------------------------------------------------------------------------------------------------------

ProcessNumber Simulator::start(const std::string& name, const ClockShape& clock, std::function<void()> body) {
  Process process;
  process.name = name;
  process.clock = clock;
  processes_.push_back(std::move(process));
  const auto number = static_cast<ProcessNumber>(processes_.size());
  if (traces()) trace("process " + std::to_string(number) + " starts: " + name);
  add_thread(number, "main", std::move(body));
  return number;
}

void Simulator::crash(ProcessNumber number) {
  Process& process = process_at(number);
  if (!process.alive) return;
  process.alive = false;
  mix(hash_, number);
  if (traces()) trace("CRASH of process " + std::to_string(number) + " " + process.name);
  if (crash_hook_) crash_hook_(number);
}

void Simulator::pause(ProcessNumber number, uint64_t until_ns) {
  Process& process = process_at(number);
  process.paused_until_ns = std::max(process.paused_until_ns, until_ns);
}

void Simulator::slow(ProcessNumber number, uint64_t factor) { process_at(number).slowness = factor; }

uint64_t Simulator::to_local(const Process& process, uint64_t virtual_now_ns) const {
  const auto drift = static_cast<__int128>(virtual_now_ns) * process.clock.rate_ppm / kMillion;
  return process.clock.offset_ns + virtual_now_ns + static_cast<uint64_t>(static_cast<int64_t>(drift));
}

uint64_t Simulator::to_world(const Process& process, uint64_t local_ns) const {
  if (local_ns == kForever) return kForever;
  const uint64_t now_local = to_local(process, now_ns_);
  if (local_ns <= now_local) return now_ns_;
  // Rounds up, so that a woken thread finds its deadline reached.
  const auto wait = static_cast<unsigned __int128>(local_ns - now_local) * kMillion;
  const auto scaled = static_cast<uint64_t>(wait / static_cast<uint64_t>(kMillion + process.clock.rate_ppm));
  const uint64_t until = now_ns_ + scaled + 2;
  return until < now_ns_ ? kForever : until;
}

// ---- events ---------------------------------------------------------------------------------------------------------

void Simulator::push(Event event) {
  event.sequence = ++sequence_;
  heap_.push_back(event);
  std::push_heap(heap_.begin(), heap_.end(), later);
}

void Simulator::at(uint64_t at_ns, std::function<void()> action) {
  uint32_t number;
  if (free_actions_.empty()) {
    actions_.emplace_back();
    number = static_cast<uint32_t>(actions_.size());
  } else {
    number = free_actions_.back();
    free_actions_.pop_back();
  }
  actions_[number - 1] = std::move(action);
  Event event;
  event.at_ns = std::max(at_ns, now_ns_);
  event.action = number;
  push(event);
}

void Simulator::wake_at(const void* place, uint64_t at_ns) {
  Event event;
  event.at_ns = std::max(at_ns, now_ns_);
  event.place = place;
  push(event);
}

void Simulator::run(uint64_t until_ns, const std::function<bool()>& stop) {
  while (!heap_.empty() && heap_.front().at_ns <= until_ns && !livelock() && !stop()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Event event = heap_.back();
    heap_.pop_back();
    now_ns_ = std::max(now_ns_, event.at_ns);
    handle(event);
  }
}

void Simulator::handle(const Event& event) {
  if (event.action != 0) {
    const std::function<void()> action = std::exchange(actions_[event.action - 1], nullptr);
    free_actions_.push_back(event.action);
    ++events_;
    action();
    return;
  }
  uint32_t number = event.thread;
  if (number == 0) {
    // An event of a place wakes the thread that waits there now. It is void if the thread has gone on.
    const auto waiting = at_place_.find(event.place);
    if (waiting == at_place_.end()) return;
    number = waiting->second;
    if (threads_[number - 1]->place != event.place) return;
  }
  Thread& thread = *threads_[number - 1];
  // An event of an earlier wait is void: the thread has been woken by another event since.
  if (!thread.waiting || (event.thread != 0 && thread.turn != event.turn)) return;
  const Process& process = process_at(thread.process);
  if (!process.alive) return;
  if (process.paused_until_ns > now_ns_) {
    // The process is paused. Its event takes place at the end of the pause.
    Event again = event;
    again.at_ns = process.paused_until_ns;
    push(again);
    return;
  }
  resume(thread);
}

void Simulator::resume(Thread& thread) {
  ++events_;
  // The hash covers time and thread of each step, so that two runs with the same hash have taken the same steps.
  mix(hash_, now_ns_);
  mix(hash_, thread.number);
  thread.waiting = false;
  thread.place = nullptr;
  ++thread.turn;
  current_ = &thread;
  thread.stack->resume();
  current_ = nullptr;
  if (!thread.stack->finished()) return;
  thread.ended = true;
  Process& process = process_at(thread.process);
  current_ = &thread;
  wake(&thread);  // wakes a thread that joins this one
  current_ = nullptr;
  std::erase(process.threads, thread.number);
  if (process.threads.empty()) process.alive = false;
}

uint64_t Simulator::step_ns(const Process& process) {
  return (kStepNs + random_.below(kStepSpreadNs)) * process.slowness;
}

// ---- threads --------------------------------------------------------------------------------------------------------

uint32_t Simulator::add_thread(ProcessNumber process, const std::string& name, std::function<void()> body) {
  auto thread = std::make_unique<Thread>();
  thread->number = static_cast<uint32_t>(threads_.size()) + 1;
  thread->process = process;
  thread->name = name;
  thread->stack = std::make_unique<testing::VirtualThread>(std::move(body));
  thread->waiting = true;
  process_at(process).threads.push_back(thread->number);
  Event event;
  event.at_ns = now_ns_ + step_ns(process_at(process));
  event.thread = thread->number;
  event.turn = thread->turn;
  push(event);
  threads_.push_back(std::move(thread));
  return threads_.back()->number;
}

uint64_t Simulator::spawn(const std::string& name, std::function<void()> body) {
  return add_thread(current_->process, name, std::move(body));
}

void Simulator::join(uint64_t number) {
  const Thread& thread = *threads_[number - 1];
  while (!thread.ended) block(&thread, kForever);
}

void Simulator::suspend(const void* place) {
  Thread& thread = *current_;
  thread.waiting = true;
  thread.place = place;
  if (place != nullptr) at_place_[place] = thread.number;
  thread.stack->pause();  // a thread of a dead process: for ever
}

void Simulator::block(const void* place, uint64_t until_ns) {
  const Process& process = process_at(current_->process);
  const uint64_t until = to_world(process, until_ns);
  if (until != kForever) {
    Event event;
    // A wait always takes some time, so a thread that polls cannot stop virtual time.
    event.at_ns = std::max(until, now_ns_ + step_ns(process));
    event.thread = current_->number;
    event.turn = current_->turn;
    push(event);
  }
  suspend(place);
}

void Simulator::wake(const void* place) {
  const Process& process = process_at(current_->process);
  for (const uint32_t number : process.threads) {
    const Thread& thread = *threads_[number - 1];
    if (!thread.waiting || thread.place != place) continue;
    Event event;
    // Each woken thread draws its own delay, so the order in which threads go on is random.
    event.at_ns = now_ns_ + step_ns(process);
    event.thread = number;
    event.turn = thread.turn;
    push(event);
  }
}

void Simulator::yield() {
  Event event;
  event.at_ns = now_ns_ + kYieldNs * process_at(current_->process).slowness;
  event.thread = current_->number;
  event.turn = current_->turn;
  push(event);
  suspend(nullptr);
}

uint64_t Simulator::now_ns() {
  if (current_ == nullptr) return now_ns_;
  now_ns_ += kReadClockNs;
  return to_local(process_at(current_->process), now_ns_);
}

uint64_t Simulator::thread() { return current_ == nullptr ? 0 : current_->number; }

const std::string& Simulator::process() {
  LOAM_CHECK(current_ != nullptr, "only a virtual thread has a process");
  return process_at(current_->process).name;
}

// ---- pause points, probes, rare branches, requests ----------------------------------------------------------------

void Simulator::count(std::string_view name) {
  const auto found = probes_.find(name);
  if (found != probes_.end()) {
    ++found->second;
  } else {
    probes_.emplace(name, 1);
  }
}

void Simulator::probe(const char* name) { count(name); }

void Simulator::pause_point(const char* name) {
  count(name);
  if (current_ == nullptr || !pause_hook_ || !process_at(current_->process).alive) return;
  const PauseDecision decision = pause_hook_(current_->process, name);
  switch (decision.kind) {
    case PauseDecision::Kind::kGoOn:
      return;
    case PauseDecision::Kind::kCrash:
      if (traces()) trace(std::string("crash at ") + name);
      // The thread that stands at the point belongs to the dead process. suspend() does not return.
      crash(current_->process);
      suspend(nullptr);
      return;
    case PauseDecision::Kind::kStall:
      if (traces()) trace(std::string("stall at ") + name);
      block(nullptr, now_ns() + decision.stall_ns);
      return;
  }
}

bool Simulator::buggify(const char* name) { return buggify_hook_ && current_ != nullptr && buggify_hook_(name); }

void Simulator::observe_request(uint64_t session, uint64_t sequence, Bytes message) {
  if (request_hook_ && current_ != nullptr) request_hook_(current_->process, session, sequence, message);
}

void Simulator::trace(const std::string& line) const {
  if (!trace_) return;
  const std::string who = current_ == nullptr ? "-" : processes_[current_->process - 1].name + "/" + current_->name;
  trace_(std::to_string(now_ns_ / 1'000) + " us  " + who + "  " + line);
}

}  // namespace loam::sim
