// A compressed archive of files that are in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace loam::cli {

/// Writes a gzip-compressed tar archive (POSIX pax) by libarchive. Owner: one command. One thread.
///
/// Only the owner of the file may read it, because it tells how a cluster is set up. Unless finish() has succeeded, the
/// destructor removes the file if open() has created it.
class ArchiveWriter {
 public:
  /// Creates the file, or replaces its content. kInvalidArgument: it cannot be opened; the message names it.
  static Result<std::unique_ptr<ArchiveWriter>> open(const std::string& path);
  ~ArchiveWriter();
  ArchiveWriter(const ArchiveWriter&) = delete;
  ArchiveWriter& operator=(const ArchiveWriter&) = delete;

  /// Adds one file. `name` is its relative path. kNoSpace: the archive cannot be written.
  Status add(const std::string& name, std::string_view content);
  /// Ends the archive, and waits until it is on the disk. Returns its size in bytes. kNoSpace: it is incomplete.
  Result<uint64_t> finish();

 private:
  struct Impl;
  explicit ArchiveWriter(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace loam::cli
