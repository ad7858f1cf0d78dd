// The production thread, and the functions of thread.h that the simulator replaces.
#include "common/base/thread.h"

#include <chrono>
#include <random>
#include <utility>

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/signal_stack.h"

namespace loam {

RealThread::RealThread(const std::string& name, std::function<void()> body, int nice)
    : thread_([name, body = std::move(body), nice] {
        // The thread sets its name as well, so that a crash in its first steps is reported under this name.
        pthread_setname_np(pthread_self(), name.c_str());
        // On Linux each thread has a priority of its own. A container may refuse the change; the thread then runs at
        // normal priority.
        const SignalStack stack;
        if (nice != 0) static_cast<void>(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice));
        body();
      }) {
  pthread_setname_np(thread_.native_handle(), name.c_str());
}

#ifndef LOAM_ENV_SIM
void sleep_ns(uint64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }
uint64_t entropy() { return std::random_device{}() | uint64_t{std::random_device{}()} << 32; }
#endif

}  // namespace loam
