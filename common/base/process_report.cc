#include "common/base/process_report.h"

#include <utility>

namespace loam {
namespace {

// Never destroyed, because the threads of a server may read it while the process exits.
ProcessReport& report_of_process() {
  static auto* const report = new ProcessReport;
  return *report;
}

}  // namespace

void set_process_report(ProcessReport report) { report_of_process() = std::move(report); }
const ProcessReport& process_report() { return report_of_process(); }

}  // namespace loam
