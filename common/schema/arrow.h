// Chunks as Arrow arrays, through the Arrow C data interface: no copy, no dependency on an Arrow library.
#pragma once

#include <cstdint>
#include <memory>

#include "common/schema/chunk.h"

// The two structs are the interface's own definition, guarded as its specification asks, so that programs that include
// Arrow's or nanoarrow's headers too see one definition. https://arrow.apache.org/docs/format/CDataInterface.html
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

extern "C" {

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
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
};
}

#endif  // ARROW_C_DATA_INTERFACE

namespace loam {

/// Fills `out` with a struct type that has one child a column. The caller calls out->release when done with it.
void export_schema(const ResultSchema& schema, ArrowSchema* out);

/// Fills `out` with a struct array whose children point into the chunk, which lives until the array and every child
/// that was moved out of it are released. `out->release` may be called from any thread.
void export_chunk(const std::shared_ptr<const Chunk>& chunk, ArrowArray* out);

}  // namespace loam
