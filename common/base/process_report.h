// What a server program tells about itself at the administration port, beside the statistics of its server.
#pragma once

#include <functional>
#include <string>

namespace loam {

/// The functions that make the report. Any thread calls them.
struct ProcessReport {
  std::function<std::string()> options;   ///< a JSON object: program, version, build id, options without secrets
  std::function<std::string()> last_log;  ///< the newest lines of the log
};

/// Sets the report of the process. A program calls it before its server starts, and without functions after the server
/// has ended. `loam dev` and tests run servers without a report.
void set_process_report(ProcessReport report);
/// Returns the report of the process. Its functions may be empty. Any thread while a server runs.
const ProcessReport& process_report();

}  // namespace loam
