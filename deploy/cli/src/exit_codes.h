// Exit codes of `loam`. docs/cli.md has the table for users; a test compares the two.
#pragma once

#include "common/base/status.h"

namespace loam::cli {

/// Exit code of the program.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,         ///< the cluster refused the operation or could not execute it
  kExitUsage = 2,          ///< the command line is wrong
  kExitNoConnection = 3,   ///< no commit manager at the address, or the session was lost
  kExitBadData = 4,        ///< a value or a file does not fit the table
  kExitPartly = 5,         ///< import --on-error skip: done, except for skipped rows
  kExitCheckFailed = 6,    ///< doctor or demo found something wrong
  kExitNotStarted = 7,     ///< dev: the servers did not start
  kExitInterrupted = 130,  ///< ended by SIGINT
};

/// The exit code for an error of the client library: kExitNoConnection for kUnavailable, kUnsupportedVersion, kFenced
/// and kWrongCluster, otherwise kExitFailed. kExitOk if `status` is ok.
ExitCode exit_code_of(const Status& status);

}  // namespace loam::cli
