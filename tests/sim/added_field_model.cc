#include "tests/sim/added_field_model.h"

#include <mutex>
#include <string>

namespace loam::sim {

void AddedFieldModel::added(TableId table, uint8_t fields) {
  const std::lock_guard lock(verdict_.mutex());
  Added& known = added_[table];
  if (fields > known.fields) known = {fields, verdict_.next()};
}

void AddedFieldModel::opened(TableId table, uint8_t fields, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  const auto known = added_.find(table);
  if (known == added_.end() || known->second.from >= requested_at || fields >= known->second.fields) return;
  verdict_.violate("added-field-lost", "table " + std::to_string(table.value) + " was opened with " +
                                           std::to_string(fields) + " added fields, and has " +
                                           std::to_string(known->second.fields) + " since event " +
                                           std::to_string(known->second.from));
}

void AddedFieldModel::wrote(RecordId place, uint64_t tag, uint8_t fields, bool makes) {
  const std::lock_guard lock(verdict_.mutex());
  writes_[tag] = {place, fields, makes};
}

void AddedFieldModel::read(RecordId place, uint64_t tag, std::span<const std::optional<uint64_t>> fields) {
  const std::lock_guard lock(verdict_.mutex());
  const auto last = writes_.find(tag);
  if (last == writes_.end()) return;  // another invariant judges tags without a write
  for (size_t field = 0; field < fields.size(); ++field) {
    const std::optional<uint64_t>& seen = fields[field];
    const auto by = seen ? writes_.find(*seen) : writes_.end();
    bool right;
    if (field < last->second.fields) {
      right = seen == tag;
    } else if (last->second.makes || !seen) {
      right = !seen;
    } else {
      right = by != writes_.end() && by->second.place == place && field < by->second.fields;
    }
    if (right) continue;
    verdict_.violate("added-field", to_string(place) + " with tag " + std::to_string(tag) + " has " +
                                        (seen ? "tag " + std::to_string(*seen) : "NULL") + " in added field " +
                                        std::to_string(field));
  }
}

}  // namespace loam::sim
