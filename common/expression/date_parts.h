// Parts of dates and timestamps, as PostgreSQL defines them.
#pragma once

#include <cstdint>

#include "common/schema/expression.h"

namespace loam {

/// A part of a date: an int32, or for kEpoch microseconds. `part` is none of a time.
int64_t part_of_date(DatePart part, int32_t date);
/// A part of a timestamp: an int32, or for kSecond and kEpoch microseconds.
int64_t part_of_timestamp(DatePart part, int64_t timestamp_us);

/// The first day of the year, quarter, month, week or day in which the date lies.
int32_t truncated_date(DatePart part, int32_t date);
/// The begin of the part in which the timestamp lies.
int64_t truncated_timestamp(DatePart part, int64_t timestamp_us);

}  // namespace loam
