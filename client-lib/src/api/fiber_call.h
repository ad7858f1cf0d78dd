// What the public calls have in common.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <loam/client/table.h>

#include "client-lib/src/api/call_scope.h"
#include "client-lib/src/driver/engine.h"
#include "client-lib/src/driver/limit_status.h"
#include "common/base/status.h"
#include "common/fiber/limit.h"
#include "common/wire/system_tables.h"

namespace loam::client {

template <class T>
void name_end(Result<T>& result) {
  if (result.ok()) return;
  Status status = result.status();
  name_end(status);
  result = std::move(status);
}

/// Runs `function` in a fiber of the client, bounded by the CallScopes of the caller, and waits; at once if the caller
/// is one. `function` returns a Status or a Result. kOverloaded if there is no fiber for it.
template <class Function>
auto in_fiber(Engine& engine, Function&& function) -> std::invoke_result_t<Function> {
  std::optional<std::invoke_result_t<Function>> result;
  const CallScope::Impl* const scope = CallScope::Impl::of_thread();
  engine.worker().call([&] {
    std::optional<BoundFiber> bound;
    if (scope != nullptr) scope->bind(bound);
    result.emplace(function());
    if (fiber::Limit::any()) name_end(*result);
  });
  if (result) return std::move(*result);
  return Status(StatusCode::kOverloaded, "the client has no fiber left for this call; use fewer threads, or run()");
}

/// What every access by an application must satisfy.
inline Status check_access(const Table& table, TableKind kind) {
  if (table.id() < wire::kFirstUserTableId) {
    return {StatusCode::kInvalidArgument, "table " + table.name() + " is the system's own"};
  }
  if (table.kind() != kind) {
    return {StatusCode::kWrongTableKind,
            "table " + table.name() + " is " + std::string(to_string(table.kind())) +
                (kind == TableKind::kTransactional ? ": use Client::plain()" : ": use a transaction")};
  }
  return ok_status();
}

/// What an insert or a scan needs.
inline Status check_whole(const Table& table, std::string_view what) {
  if (!table.projected()) return ok_status();
  return {StatusCode::kInvalidArgument,
          "table " + table.name() + ": " + std::string(what) + " needs the whole table, not a projection of it"};
}

}  // namespace loam::client
