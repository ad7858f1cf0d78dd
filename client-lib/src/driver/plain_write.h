// Exact-version writes of non-transactional tables.
#pragma once

#include <memory>
#include <span>

#include <loam/client/table.h>

#include "client-lib/src/driver/engine.h"
#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/reserve.h"
#include "common/base/status.h"
#include "common/wire/storage.h"

namespace loam::client {

/// The write of a whole row of `table`, or of its fields if it is a projection. `row` must outlive the operation.
wire::PlainWrite::Operation plain_operation(const Table& table, Key key, wire::WriteKind kind, Version expected,
                                            Bytes row, Reserve reserve = Reserve::kWrite);

/// Executes one exact-version write (R21) and returns the new version. In a fiber.
///
/// A write that certainly had no effect, because its storage node could not be reached, is repeated until the
/// request's deadline. `session`: the only session that may write, so that no write happens after it is fenced
/// (kFenced); null: the client's current session. `table` names the record in messages. `intents`: the changes of
/// transactions that the write of a tree node carries (R5, intents before answers).
///
/// kConflict, kAlreadyExists, kNoSpace and others: the storage node has refused the write. kUnknownOutcome: the
/// reply was lost.
Result<Version> plain_write(Engine& engine, const std::shared_ptr<Session>& session, const Table& table,
                            const wire::PlainWrite::Operation& operation,
                            std::span<const wire::IndexIntent> intents = {});

}  // namespace loam::client
