// SIGINT and SIGTERM, for subcommands that end orderly.
#pragma once

namespace loam::cli {

/// From now on the two signals only set a flag (a second one ends the program as usual). Call it before threads start.
void catch_interrupts();
bool interrupted();
/// Blocks the two signals for this thread and those it starts; wait_for_interrupt() then waits for one of them.
void block_interrupts();
void wait_for_interrupt();

}  // namespace loam::cli
