// Exit codes of `loam`; the table for people is in docs/cli.md, and the tests compare the two.
#pragma once

#include "common/base/status.h"

namespace loam::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,         ///< the cluster refused or could not do it
  kExitUsage = 2,          ///< the command line is wrong
  kExitNoConnection = 3,   ///< no commit manager at the address, or the session was lost
  kExitBadData = 4,        ///< values or a file that do not fit the table
  kExitPartly = 5,         ///< import --on-error skip: done, but for the rows that were skipped
  kExitCheckFailed = 6,    ///< doctor or demo found something wrong
  kExitNotStarted = 7,     ///< dev: the servers could not start
  kExitInterrupted = 130,  ///< by SIGINT
};

/// For an answer of the cluster: kExitNoConnection for kUnavailable and kTimeout while connecting or later, else
/// kExitFailed.
ExitCode exit_code_of(const Status& status);

}  // namespace loam::cli
