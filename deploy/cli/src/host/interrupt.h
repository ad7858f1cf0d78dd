// SIGINT and SIGTERM, for subcommands that end orderly.
#pragma once

namespace loam::cli {

/// From now on the two signals only set a flag (a second one ends the program as usual). Call it before threads start.
void catch_interrupts();
bool interrupted();
/// A descriptor that is readable once a signal was caught, to be polled beside others; -1 before catch_interrupts(), or
/// if the process may have no more descriptors.
int interrupt_descriptor();
/// Blocks the two signals for this thread and those it starts; wait_for_interrupt() then waits for one of them.
void block_interrupts();
void wait_for_interrupt();

}  // namespace loam::cli
