// The last line of a program that crashes.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include <unistd.h>

#include "common/program/log_format.h"

namespace loam::program {

/// Where the line of a crash goes.
struct CrashOutput {
  int fd = STDERR_FILENO;
  LogFormat format = LogFormat::kText;
  // The numbers of lines that the log output has queued and written. Null: there is no queue. The thread that crashes
  // waits up to CrashHandler::kQueueWaitMs until all lines that were queued before are written.
  const std::atomic<uint64_t>* queued = nullptr;
  const std::atomic<uint64_t>* written = nullptr;
};

/// Logs the event "crash" when SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGABRT ends the process, then lets the signal end
/// it as by default, with a core dump if the system makes one.
///
/// The line contains the signal, the fault address or the sender, the thread, the build id of the program, the text of
/// a failed assertion or an uncaught exception, and the stack. Each stack frame is `module+0xOFFSET`, for
/// `addr2line -e module 0xOFFSET`. The line does not name functions, because reading symbols is not safe in a process
/// with damaged memory.
///
/// The handler only calls functions that are safe in a signal handler: it neither allocates nor locks. It unwinds with
/// libgcc, which finds the unwind tables without a lock (_dl_find_object). If unwinding itself faults, the line has the
/// frames that were found before. The first thread that crashes reports; others wait for the end of the process.
///
/// Process-wide. Threads: main() calls both functions before it starts threads, or when no other thread logs.
class CrashHandler {
 public:
  /// Handles the signals and std::terminate(), and gives later threads (common/base/thread.h) a signal stack. Does
  /// nothing under a sanitizer, whose own report is better.
  static void install();
  /// Sets where the line goes; without a call it goes to stderr as text.
  static void set_output(const CrashOutput& output);
  /// Returns the build id of the program as hexadecimal digits, as `readelf -n` shows it. Empty: it has none.
  static std::string_view build_id();

  /// Upper bound on the wait for queued lines.
  static constexpr int kQueueWaitMs = 500;
  /// Upper bound on the number of frames in the line.
  static constexpr size_t kMaxFrames = 64;
};

}  // namespace loam::program
