// Helpers of the public calls: run in a fiber, check tables.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <loam/client/table.h>

#include "client-lib/src/api/call_scope.h"
#include "client-lib/src/driver/cancel_scope_status.h"
#include "client-lib/src/driver/engine.h"
#include "common/base/status.h"
#include "common/fiber/cancel_scope.h"
#include "common/wire/system_tables.h"

namespace loam::client {

template <class T>
void apply_cancel_scope_status(Result<T>& result) {
  if (result.ok()) return;
  Status status = result.status();
  apply_cancel_scope_status(status);
  result = std::move(status);
}

/// Runs `function` in a fiber of the client and waits for it; in the caller, if the caller is such a fiber. The
/// CallScopes of the caller bound it. `function` returns a Status or a Result. kOverloaded: the client has no free
/// fiber.
template <class Function>
auto in_fiber(Engine& engine, Function&& function) -> std::invoke_result_t<Function> {
  std::optional<std::invoke_result_t<Function>> result;
  const CallScope::Impl* const scope = CallScope::Impl::of_thread();
  engine.worker().call([&] {
    std::optional<TokenCancelScope> bound;
    if (scope != nullptr) scope->enter(bound);
    result.emplace(function());
    if (fiber::CancelScope::any()) apply_cancel_scope_status(*result);
  });
  if (result) return std::move(*result);
  return Status(StatusCode::kOverloaded, "the client has no free fiber for this call; use fewer threads, or run()");
}

/// Checks that an application may access the table, and that it has the right kind.
inline Status check_access(const Table& table, TableKind kind) {
  if (table.id() < wire::kFirstUserTableId) {
    return {StatusCode::kInvalidArgument, "table " + table.name() + " belongs to the system"};
  }
  if (table.kind() != kind) {
    return {StatusCode::kWrongTableKind,
            "table " + table.name() + " is " + std::string(to_string(table.kind())) +
                (kind == TableKind::kTransactional ? ": use Client::plain()" : ": use a transaction")};
  }
  return ok_status();
}

/// Checks that the handle is not a projection, for inserts and scans.
inline Status check_whole(const Table& table, std::string_view what) {
  if (!table.projected()) return ok_status();
  return {StatusCode::kInvalidArgument,
          "table " + table.name() + ": " + std::string(what) + " needs the whole table, not a projection of it"};
}

}  // namespace loam::client
