// Prefetching the row of an entry before an operation copies it.
#pragma once

#include <algorithm>
#include <cstddef>

#include "storage-node/src/log/columns.h"

namespace loam::storage {

/// Prefetches the cache lines of an entry behind its first one, or the row's values if the row lies in columns.
///
/// The caller holds an epoch guard. Measured: 1.16 times as many gets of 200-byte rows out of 10 million records
/// (loam-bench index). The effect on moves was not measured.
inline void prefetch_row(const Entry& entry) {
  if (entry.kind == EntryKind::kColumns) [[unlikely]]
    return Columns::of(entry).prefetch(Columns::row_of(entry));
  constexpr size_t kLine = 64;
  constexpr size_t kMaxPrefetchBytes = 512;  // the processor itself prefetches the rest of a longer copy
  const auto* const at = reinterpret_cast<const std::byte*>(&entry);
  const size_t end = std::min<size_t>(entry.size_bytes, kMaxPrefetchBytes);
  for (size_t line = kLine; line < end; line += kLine) __builtin_prefetch(at + line);
}

}  // namespace loam::storage
