// The findings of `loam doctor` for other commands.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "deploy/cli/src/host/doctor.h"

namespace loam::cli {

/// The options of `loam doctor` without arguments, on this host.
DoctorOptions default_doctor_options();
/// A finding as `loam doctor --json` prints it.
nlohmann::ordered_json to_json(const Finding& finding);

}  // namespace loam::cli
