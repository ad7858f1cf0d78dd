#include <utility>

#include <loam/client/counter.h>

#include "client-lib/src/api/fiber_call.h"
#include "client-lib/src/driver/counter_impl.h"

namespace loam::client {

Counter::Counter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Counter::~Counter() = default;
Counter::Counter(Counter&&) noexcept = default;
Counter& Counter::operator=(Counter&&) noexcept = default;

Result<uint64_t> Counter::next() {
  return in_fiber(impl_->engine(), [&] { return impl_->next(); });
}

}  // namespace loam::client
