// Export of chunks as Arrow arrays by the Arrow C data interface, without a copy and without an Arrow library.
#pragma once

#include <cstdint>
#include <memory>

#include "common/schema/chunk.h"

// The two structs are copied from the specification of the interface, with the guard that it requires. So a program
// that also includes the headers of Arrow or nanoarrow sees one definition.
// https://arrow.apache.org/docs/format/CDataInterface.html
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

extern "C" {

/// The type of an array, as Arrow's C data interface defines it. export_schema() fills one.
struct ArrowSchema {
  /// The specification of the interface explains each member.
  /// @{
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
  /// @}
};

/// The buffers of an array, as Arrow's C data interface defines them. export_chunk() fills one.
struct ArrowArray {
  /// The specification of the interface explains each member.
  /// @{
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
  /// @}
};
}

#endif  // ARROW_C_DATA_INTERFACE

namespace loam {

/// Fills `out` with a struct type that has one child for each column. The caller releases it by out->release.
void export_schema(const ResultSchema& schema, ArrowSchema* out);

/// Fills `out` with a struct array whose children point into the chunk. The array keeps the chunk alive until the
/// array, and every child that was moved out of it, is released. Any thread may call `out->release`.
void export_chunk(const std::shared_ptr<const Chunk>& chunk, ArrowArray* out);

}  // namespace loam
