#include "common/base/bytes.h"

#include <string>

namespace loam {

Status ByteReader::status(std::string_view what) const {
  if (!failed_) return ok_status();
  return {StatusCode::kMalformed, std::string(what) + ": the bytes end early or a length is out of range"};
}

Status ByteReader::finish(std::string_view what) const {
  LOAM_RETURN_IF_ERROR(status(what));
  if (at_end()) return ok_status();
  return {StatusCode::kMalformed, std::string(what) + ": " + std::to_string(remaining()) + " bytes too many"};
}

}  // namespace loam
