// The handler of fatal signals. Everything that runs in it is async-signal-safe [signal-safety(7)].
#include "common/program/crash_handler.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <ctime>
#include <exception>
#include <string>
#include <typeinfo>

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unwind.h>

#include "common/base/crash_reason.h"
#include "common/base/sanitizer.h"
#include "common/base/signal_stack.h"

namespace loam::program {
namespace {

struct FatalSignal {
  int number;
  std::string_view name;
};
constexpr std::array<FatalSignal, 5> kSignals = {
    {{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGILL, "SIGILL"}, {SIGFPE, "SIGFPE"}, {SIGABRT, "SIGABRT"}}};

// Written before threads start; the handler reads them.
CrashOutput crash_output;
std::array<char, 64> build_id_text;
size_t build_id_length = 0;

// The thread that reports. Acquire and release: the state below belongs to that thread.
std::atomic<pid_t> reporter{0};
std::array<uintptr_t, CrashHandler::kMaxFrames> frames;
volatile size_t frame_count = 0;
volatile sig_atomic_t unwinding = 0;
sigjmp_buf unwinding_failed;

/// A text of bounded length in static memory. What does not fit is left out.
class Text {
 public:
  void clear() { size_ = 0; }
  std::string_view view() const { return {bytes_.data(), size_}; }
  Text& operator<<(std::string_view text) {
    const size_t size = std::min(text.size(), bytes_.size() - size_);
    std::copy_n(text.begin(), size, bytes_.begin() + static_cast<ptrdiff_t>(size_));
    size_ += size;
    return *this;
  }
  Text& decimal(uint64_t number, size_t width = 1) { return add_number(number, 10, width); }
  Text& hexadecimal(uint64_t number) { return (*this << "0x").add_number(number, 16, 1); }
  /// Adds a text of unknown bytes: all but printable ASCII becomes '?', so that no format has to quote it.
  Text& printable(std::string_view text) {
    for (const char c : text) {
      const bool good = c >= ' ' && c < '\x7f' && c != '"' && c != '\\';
      *this << std::string_view(good ? &c : "?", 1);
    }
    return *this;
  }

 private:
  Text& add_number(uint64_t number, int base, size_t width) {
    std::array<char, 20> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base).ptr;
    const auto size = static_cast<size_t>(end - digits.data());
    for (size_t i = size; i < width; ++i) *this << "0";
    return *this << std::string_view(digits.data(), size);
  }

  std::array<char, 8'192> bytes_;
  size_t size_ = 0;
};

// The reporter's texts. They are static, because the signal stack is small.
Text line_text;
Text message_text;
Text stack_text;

// ---- the stack -----------------------------------------------------------------------------------------------------

/// Adds a frame, once the frames of the handler itself are passed. `interrupted` is the position at which the signal
/// arrived.
_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* interrupted) {
  int exact = 0;
  const uintptr_t at = _Unwind_GetIPInfo(context, &exact);
  if (frame_count == 0 && at != *static_cast<uintptr_t*>(interrupted)) return _URC_NO_REASON;
  if (frame_count != 0 && at == 0) return _URC_END_OF_STACK;  // the first function of a thread has no caller
  // A return address may belong to the next line or function, so the call before it is reported.
  frames[frame_count] = exact != 0 || frame_count == 0 ? at : at - 1;
  frame_count = frame_count + 1;
  return frame_count == frames.size() ? _URC_END_OF_STACK : _URC_NO_REASON;
}

void record_frames(uintptr_t interrupted) {
  // A second fault, in the unwinder, returns here with a value other than 0 and keeps the frames so far.
  if (sigsetjmp(unwinding_failed, 1) == 0) {
    unwinding = 1;
    _Unwind_Backtrace(add_frame, &interrupted);
  }
  unwinding = 0;
  // The position alone is known even if the stack is destroyed, or the position is no code.
  if (frame_count == 0) {
    frames[0] = interrupted;
    frame_count = 1;
  }
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

void describe_frames() {
  for (size_t i = 0; i < frame_count; ++i) {
    if (i != 0) stack_text << " ";
    dl_find_object found{};
    if (_dl_find_object(reinterpret_cast<void*>(frames[i]), &found) != 0) {
      stack_text.hexadecimal(frames[i]);
      continue;
    }
    const link_map& module = *found.dlfo_link_map;
    const std::string_view name = module.l_name;
    stack_text.printable(name.empty() ? program_invocation_short_name : file_name(name)) << "+";
    stack_text.hexadecimal(frames[i] - module.l_addr);
  }
}

// ---- the line ------------------------------------------------------------------------------------------------------

void add_time(Text& text) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  // gmtime_r() is not safe in a signal handler; these classes only calculate.
  const auto time = std::chrono::sys_seconds(std::chrono::seconds(now.tv_sec));
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  text.decimal(static_cast<uint64_t>(static_cast<int>(date.year())), 4) << "-";
  text.decimal(static_cast<unsigned>(date.month()), 2) << "-";
  text.decimal(static_cast<unsigned>(date.day()), 2) << "T";
  text.decimal(static_cast<uint64_t>(clock.hours().count()), 2) << ":";
  text.decimal(static_cast<uint64_t>(clock.minutes().count()), 2) << ":";
  text.decimal(static_cast<uint64_t>(clock.seconds().count()), 2) << ".";
  text.decimal(static_cast<uint64_t>(now.tv_nsec / 1'000'000), 3) << "Z";
}

/// Adds one field behind those that the line has. All texts are printable ASCII without quotes.
void add_field(std::string_view key, std::string_view value) {
  if (crash_output.format == LogFormat::kJson) {
    line_text << ",\"" << key << "\":\"" << value << "\"";
  } else {
    line_text << " " << key << "=\"" << value << "\"";
  }
}

void add_number(std::string_view key, uint64_t value) {
  if (crash_output.format == LogFormat::kJson) {
    line_text << ",\"" << key << "\":";
  } else {
    line_text << " " << key << "=";
  }
  line_text.decimal(value);
}

void compose_line(std::string_view signal, const siginfo_t& info) {
  std::array<char, 17> thread{};
  ::prctl(PR_GET_NAME, thread.data());
  // The kernel reports an address only for faults; a signal of kill() or raise() has a sender.
  const bool fault = info.si_code > 0 && info.si_code != SI_KERNEL;
  const auto address = reinterpret_cast<uintptr_t>(info.si_addr);
  const auto sender = static_cast<uint64_t>(info.si_pid);
  const bool from_outside = info.si_code <= 0 && info.si_pid != ::getpid();
  Text& message = message_text;
  message << "the program crashed by " << signal;
  if (fault) (message << " at address ").hexadecimal(address);
  if (from_outside) (message << ", sent by process ").decimal(sender);
  (message << ", in thread ").printable(thread.data())
      << "; version " LOAM_VERSION ", build id " << CrashHandler::build_id();
  if (!crash_reason().empty()) (message << "; ").printable(crash_reason());
  if (crash_output.format == LogFormat::kText) {
    add_time(line_text);
    line_text << " error [crash] " << message.view() << "; stack: " << stack_text.view() << "\n";
    return;
  }
  const bool json = crash_output.format == LogFormat::kJson;
  line_text << (json ? R"({"time":")" : "time=");
  add_time(line_text);
  line_text << (json ? R"(","level":"error","event":"crash","message":")" : " level=error event=crash message=\"")
            << message.view() << "\"";
  add_field("signal", signal);
  if (fault) {
    Text& text = message_text;
    text.clear();
    text.hexadecimal(address);
    add_field("address", text.view());
  }
  if (from_outside) add_number("sender", sender);
  message_text.clear();
  add_field("thread", message_text.printable(thread.data()).view());
  add_field("version", LOAM_VERSION);
  add_field("build_id", CrashHandler::build_id());
  message_text.clear();
  if (!crash_reason().empty()) add_field("reason", message_text.printable(crash_reason()).view());
  add_field("stack", stack_text.view());
  line_text << (json ? "}\n" : "\n");
}

/// Waits until the lines are written that were queued before the crash. The thread of the log output writes them.
void wait_for_queue() {
  if (crash_output.queued == nullptr) return;
  const uint64_t queued = crash_output.queued->load(std::memory_order_relaxed);  // relaxed: a lower bound suffices
  for (int i = 0; i < CrashHandler::kQueueWaitMs; ++i) {
    if (crash_output.written->load(std::memory_order_acquire) >= queued) return;
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = ::write(crash_output.fd, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    text.remove_prefix(static_cast<size_t>(size));
  }
}

/// Lets the signal end the process. It is pending until the handler returns, so a core dump shows the thread where the
/// signal arrived.
void end_by(int number) {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  ::sigaction(number, &action, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::syscall(SYS_tgkill, ::getpid(), ::gettid(), number);
}

void on_fatal_signal(int number, siginfo_t* info, void* context) {
  const pid_t thread = ::gettid();
  pid_t none = 0;
  if (!reporter.compare_exchange_strong(none, thread, std::memory_order_acq_rel, std::memory_order_acquire)) {
    if (none != thread) {
      for (;;) ::pause();  // the reporter ends the process
    }
    if (unwinding != 0) siglongjmp(unwinding_failed, 1);
    end_by(number);  // a fault in the report itself
    return;
  }
  const auto* const state = static_cast<const ucontext_t*>(context);
  record_frames(static_cast<uintptr_t>(state->uc_mcontext.gregs[REG_RIP]));
  describe_frames();
  const auto* const known = std::ranges::find(kSignals, number, &FatalSignal::number);
  compose_line(known == kSignals.end() ? "a signal" : known->name, *info);
  wait_for_queue();
  write_all(line_text.view());
  end_by(number);
}

// ---- outside of the handler ----------------------------------------------------------------------------------------

[[noreturn]] void on_terminate() {
  std::string reason = "std::terminate() was called";
  if (const std::type_info* const type = abi::__cxa_current_exception_type(); type != nullptr) {
    reason = "uncaught exception of type " + std::string(type->name());
    try {
      throw;
    } catch (const std::exception& error) {
      reason += ": " + std::string(error.what());
    } catch (...) {
      reason += ", which is no std::exception";
    }
  }
  set_crash_reason(reason);
  std::abort();
}

/// Reads the build id from the notes of the program. The loader lists the program first.
int read_build_id(dl_phdr_info* program, size_t, void*) {
  constexpr std::array<char, 4> kGnu = {'G', 'N', 'U', '\0'};
  for (int i = 0; i < program->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = program->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(program->dlpi_addr + part.p_vaddr);
    const char* const end = at + part.p_memsz;
    const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof(note));
      const char* const name = at + sizeof(note);
      const char* const bytes = name + padded(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == kGnu.size() &&
          std::memcmp(name, kGnu.data(), kGnu.size()) == 0) {
        constexpr std::string_view kDigits = "0123456789abcdef";
        for (size_t k = 0; k < note.n_descsz && build_id_length + 2 <= build_id_text.size(); ++k) {
          const auto byte = static_cast<unsigned char>(bytes[k]);
          build_id_text[build_id_length++] = kDigits[byte >> 4];
          build_id_text[build_id_length++] = kDigits[byte & 15];
        }
        return 1;
      }
      at = bytes + padded(note.n_descsz);
    }
  }
  return 1;
}

_Unwind_Reason_Code stop_at_once(_Unwind_Context*, void*) { return _URC_END_OF_STACK; }

}  // namespace

void CrashHandler::install() {
  if constexpr (kSanitized) return;  // the sanitizer reports the crashes
  static_cast<void>(build_id());
  _Unwind_Backtrace(stop_at_once, nullptr);  // binds the symbols of the unwinder, which a handler must not do
  SignalStack::enable();
  static auto* const main_stack = new SignalStack;  // never destroyed: main() may crash until its end
  static_cast<void>(main_stack);
  std::set_terminate(on_terminate);
  struct sigaction action{};
  action.sa_sigaction = on_fatal_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;  // SA_NODEFER: a fault of the unwinder comes back
  for (const FatalSignal& signal : kSignals) ::sigaction(signal.number, &action, nullptr);
}

void CrashHandler::set_output(const CrashOutput& output) { crash_output = output; }

std::string_view CrashHandler::build_id() {
  static const bool read = [] { return dl_iterate_phdr(read_build_id, nullptr) != 0; }();
  return {build_id_text.data(), read ? build_id_length : 0};
}

}  // namespace loam::program
