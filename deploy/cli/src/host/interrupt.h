// SIGINT and SIGTERM, for subcommands that clean up before they end.
#pragma once

#include <cstdint>

namespace loam::cli {

/// From now on the first of the two signals only sets a flag; a second one ends the program. Call before threads start.
void catch_interrupts();
/// Returns whether a signal has arrived since catch_interrupts().
bool interrupted();
/// Sleeps until this time of the monotonic clock (Env::now_ns()), or until a signal arrives. Returns false in the
/// second case.
bool sleep_until(uint64_t at_ns);
/// A descriptor that becomes readable when a signal arrives, to be polled beside others. -1 before catch_interrupts(),
/// or if the process has no descriptor left.
int interrupt_descriptor();
/// Blocks the two signals for this thread and the threads that it starts, so that wait_for_interrupt() receives them.
void block_interrupts();
/// Blocks until one of the two signals arrives. block_interrupts() comes first.
void wait_for_interrupt();

}  // namespace loam::cli
