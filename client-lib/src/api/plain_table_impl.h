// Implementation of PlainTable.
#pragma once

#include <loam/client/plain_table.h>

#include "client-lib/src/driver/engine.h"

namespace loam::client {

class PlainTable::Impl {
 public:
  explicit Impl(Engine& owner) : engine(owner) {}
  Engine& engine;
};

}  // namespace loam::client
